//go:build !amd64 || purego

package coded

import "github.com/heftai/heft/internal/kernels/isa"

func decoderOf(isa.Variant) decoder { return goDecoder{} }

func pairsOf(isa.Variant) pairer { return nil }

func splitsOf(isa.Variant) splitter { return nil }

func stripsOf(isa.Variant) striper { return nil }

func packsOf(isa.Variant) packer { return nil }
