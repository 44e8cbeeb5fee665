//go:build !amd64 || purego

package optimizer

import "github.com/heftai/heft/internal/kernels/isa"

func opsOf(isa.Variant) ops { return goOps{} }
