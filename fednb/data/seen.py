"""An image file as a person sees it: turned, on white, in eight bits."""

import numpy as np
from PIL import Image, ImageOps

_STEP = 257  # of a 16-bit scale between two values of the 8-bit one: 65535 / 255


def as_seen(image: Image.Image) -> Image.Image:
    """An RGB image, as programs show it.

    A camera's note on which side is up is heeded. What is transparent lies on white. Sixteen bits
    become eight by their whole range, so that two images of one set stay comparable; Pillow alone
    would cut off all that is above 255.
    """
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        image = Image.fromarray(np.rint(values / _STEP).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return image.convert("RGB")
