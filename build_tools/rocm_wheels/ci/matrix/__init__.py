"""The matrix of CI: families × Pythons × torch lines × platforms, what is left out, and what it costs."""

from rocm_wheels.ci.matrix.cells import Built, Left, Matrix, plan_matrix
from rocm_wheels.ci.matrix.selection import Cell, Selection, parse_cell

__all__ = ["Built", "Cell", "Left", "Matrix", "Selection", "parse_cell", "plan_matrix"]
