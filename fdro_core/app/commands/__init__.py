"""The commands behind `fdro`, one file each; `fdro_core.app.cli` gathers them."""
