package model

import (
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// castOf returns the dtype that matrices are rounded to in products under the tape's autocast.
func castOf(tp *tensor.Tape) meta.DType {
	switch tp.Autocasting() {
	case tensor.BFloat16:
		return meta.BFloat16
	case tensor.Float16:
		return meta.Float16
	}
	return meta.Float32
}
