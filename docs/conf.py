"""Settings of Sphinx; `make docs` builds the pages into out/docs."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from docs.sources import write_sources  # noqa: E402
from gpudemand import __version__  # noqa: E402

project = "gpudemand"
author = copyright = "The gpudemand developers"  # noqa: A001
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # outputs are stored in the notebooks, and CI runs these on its own

# Docstrings name parameters and public names alike in single backquotes; only the latter are links.
default_role = "autolink"
autodoc_typehints = "none"  # the docstrings say more
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "gpudemand"
html_static_path = ["_static"]
html_css_files = ["gpudemand.css"]
html_copy_source = False
html_show_sphinx = False


def is_inherited_from_a_library(app, what, name, obj, skip, options):
    """Whether to leave out a member: scikit-learn, pandas and Python document their own."""
    function = getattr(obj, "fget", obj)
    return skip or not (getattr(function, "__module__", None) or "gpudemand").startswith("gpudemand")


def make_sources(app, config):
    """Write the generated pages before Sphinx looks which pages there are, and name those whose names have pages."""
    write_sources(HERE)
    config.autosummary_generate = sorted(f"reference/{file.name}" for file in HERE.glob("reference/*.rst"))


def setup(app):
    """Join the two hooks."""
    app.connect("config-inited", make_sources)
    app.connect("autodoc-skip-member", is_inherited_from_a_library)
