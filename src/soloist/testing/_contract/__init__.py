"""The cases of `soloist.testing.contract`, by what they are about."""

import pkgutil

import pytest

# Each module by its name, since this one is imported already: that it can't be rewritten any more would be a warning.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
