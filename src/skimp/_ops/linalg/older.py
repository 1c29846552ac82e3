"""What PyTorch says, once in a process, of names that `torch.linalg` has replaced."""

from __future__ import annotations

from typing import Final


def _of(name: str, instead: str, but: str, glue: str = " ") -> str:
    return (
        f"torch.{name} is deprecated in favor of {instead}{glue}and will be removed in a future "
        f"PyTorch release.\n{but}"
    )


CHOLESKY: Final = _of(
    "cholesky",
    "torch.linalg.cholesky",
    "L = torch.cholesky(A)\nshould be replaced with\nL = torch.linalg.cholesky(A)\nand\n"
    "U = torch.cholesky(A, upper=True)\nshould be replaced with\nU = torch.linalg.cholesky(A).mH\n"
    "This transform will produce equivalent results for all valid (symmetric positive definite) "
    "inputs.",
)
QR: Final = _of(
    "qr",
    "torch.linalg.qr",
    "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\n"
    "Q, R = torch.qr(A, some)\nshould be replaced with\n"
    "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')",
)
LU: Final = _of(
    "lu",
    "torch.linalg.lu_factor / torch.linalg.lu_factor_ex",
    "LU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\n"
    "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\n"
    "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\nshould be replaced with\n"
    "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)",
)
LU_SOLVE: Final = _of(
    "lu_solve",
    "torch.linalg.lu_solve",
    "Note that torch.linalg.lu_solve has its arguments reversed.\n"
    "X = torch.lu_solve(B, LU, pivots)\nshould be replaced with\n"
    "X = torch.linalg.lu_solve(LU, pivots, B)",
    "",
)
TRIANGULAR_SOLVE: Final = _of(
    "triangular_solve",
    "torch.linalg.solve_triangular",
    "torch.linalg.solve_triangular has its arguments reversed and does not return a copy of one "
    "of the inputs.\nX = torch.triangular_solve(B, A).solution\nshould be replaced with\n"
    "X = torch.linalg.solve_triangular(A, B).",
    "",
)
