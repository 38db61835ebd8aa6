import struct
from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr
import pyverbs.providers.mlx5.mlx5_enums as e

ctx = Mlx5Context(Mlx5DVContextAttr(flags=e.mlx5dv_context_attr_flags.MLX5DV_CONTEXT_FLAGS_DEVX), "mlx5_0")
# QUERY_HCA_CAP, current values of the general capabilities
out = ctx.devx_general_cmd(struct.pack(">HHHHQ", 0x100, 0, 0, 1, 0), 0x1010)
assert out[0] == 0, out[:16]
print("contexts", out[0x10 + 0x8c] & 0x1f)
ctx.close()
