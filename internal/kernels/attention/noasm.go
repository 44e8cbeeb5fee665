//go:build !amd64 || purego

package attention

import "github.com/heftai/heft/internal/kernels/isa"

func opsOf(isa.Variant) unpacker { return goOps{} }

func pagerOf(isa.Variant) pager { return nil }

func rounderOf(isa.Variant) rounder { return nil }
