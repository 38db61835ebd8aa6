// Package all links every provider, for programs that are to run on whatever
// RDMA device there is:
//
//	import _ "github.com/goverbs/goverbs/provider/all"
package all

import (
	_ "github.com/goverbs/goverbs/provider/bnxt_re" // NetXtreme-E
	_ "github.com/goverbs/goverbs/provider/efa"     // Elastic Fabric Adapter
	_ "github.com/goverbs/goverbs/provider/irdma"   // E810
	_ "github.com/goverbs/goverbs/provider/mlx5"    // ConnectX and BlueField
	_ "github.com/goverbs/goverbs/provider/rxe"     // soft-RoCE
	_ "github.com/goverbs/goverbs/provider/siw"     // soft-iWARP
)
