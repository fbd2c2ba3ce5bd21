"""Fetching the official files of a published set."""

from pathlib import Path

from fednb.data.compare import is_complete
from fednb.data.files import reason
from fednb.data.loading import Where, load, places_of, read, spec_of
from fednb.data.spec import SPECS, DatasetSpec
from fednb.errors import DataError
from fednb.places import Places

_OWN_FOLDERS = ("usps", "svhn")  # torchvision puts the files of these into the folder itself


def download(name: str, root: Where = None) -> None:
    """Fetch the official files of a set, unless the complete set is there, and print what is there.

    It lands where `load` looks for it. A `DataError` says what to do by hand where this fails.
    """
    places = places_of(root)
    spec = spec_of(name, places)
    for part in spec.parts:
        if not SPECS[part].by_hand:
            download(part, places)
    by_command = not (spec.parts or spec.by_hand)
    if by_command and not _is_there(name, places):
        _fetch(spec, places.data)
    print(load(name, places))


def _is_there(name: str, places: Places) -> bool:
    try:
        spec, _, raw = read(name, places)
        return is_complete(spec, raw)
    except DataError:  # missing or damaged
        return False


def _fetch(spec: DatasetSpec, folder: Path) -> None:
    from torchvision import datasets  # slow to import

    folder.mkdir(parents=True, exist_ok=True)
    try:
        if spec.page.endswith(".zip"):
            datasets.utils.download_and_extract_archive(
                spec.page, str(folder), md5=spec.md5, remove_finished=True
            )
        reader = spec.name.partition("_")[0].upper()
        for options in spec.torchvision:
            target = folder / spec.name if spec.name in _OWN_FOLDERS else folder
            getattr(datasets, reader)(str(target), download=True, **options)
    except Exception as error:  # network, disk, archive: torchvision lets many kinds through
        first_file = folder.joinpath(spec.folders[0], *list(spec.files)[:1])
        raise DataError(
            f"{spec.title} could not be downloaded ({reason(error)}): try again later, or fetch it "
            f"by hand from {spec.page} and unpack it so that {first_file} exists."
        ) from error
