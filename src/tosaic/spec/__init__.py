"""TOSA as data: types, environments, and one table of operators."""

from tosaic.spec import ops_block, ops_data, ops_elementwise, ops_layout, ops_shape, ops_tensor
from tosaic.spec.dtypes import DType, TensorType
from tosaic.spec.env import Env, everything
from tosaic.spec.table import BY_CODE, OPS, OpDef

__all__ = ["BY_CODE", "OPS", "DType", "Env", "OpDef", "TensorType", "everything", "specs"]
_FAMILIES = (ops_block, ops_data, ops_elementwise, ops_layout, ops_shape, ops_tensor)
