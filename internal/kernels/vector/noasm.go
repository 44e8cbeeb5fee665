//go:build !amd64 || purego

package vector

import "github.com/heftai/heft/internal/kernels/isa"

func opsOf(isa.Variant) ops { return goOps{} }

func pairsOf(isa.Variant) pairer { return nil }
