"""The commands behind `fdro`, one file each; `fdro_core.cli.app` gathers them."""
