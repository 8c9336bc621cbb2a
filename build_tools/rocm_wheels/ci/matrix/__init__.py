"""The matrix of CI: families × Pythons × torch lines × platforms, what is left out, and what it costs."""

from rocm_wheels.ci.matrix.cells import BuiltCell, ExcludedCell, Matrix, plan_matrix
from rocm_wheels.ci.matrix.selection import MatrixCell, MatrixSelection, parse_cell

__all__ = [
    "BuiltCell",
    "MatrixCell",
    "ExcludedCell",
    "Matrix",
    "MatrixSelection",
    "parse_cell",
    "plan_matrix",
]
