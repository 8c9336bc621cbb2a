"""The matrix of CI: families × Pythons × torch lines × platforms, what is left out, and what it costs."""

from rocm_wheels.ci.matrix.cells import Built, Cell, Left, Matrix, Selection, parse_cell, plan_matrix

__all__ = ["Built", "Cell", "Left", "Matrix", "Selection", "parse_cell", "plan_matrix"]
