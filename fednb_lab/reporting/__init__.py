"""Records in, pages out."""

import lazy_loader

# What is asked for is imported then: figures and pages take seconds, and a dry run needs neither.
_FUNCTIONS = {
    "pages": ["make_pages", "read_results"],
    "words": ["main_claims"],
}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_FUNCTIONS)
