package main

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
)

// TestDtypeOfWeightsInPlace: --dtype accepts the dtype of the weights, and float32 for the values
// of 16 bits that it holds, by vLLM's names too. The rest is refused with what to do instead.
func TestDtypeOfWeightsInPlace(t *testing.T) {
	for _, c := range []struct {
		stored, asked string
		precision     dispatch.Precision
		refused       bool
	}{
		{"bfloat16", "auto", dispatch.PrecisionAuto, false},
		{"bfloat16", "bfloat16", dispatch.PrecisionAuto, false},
		{"bfloat16", "float32", dispatch.PrecisionHigh, false},
		{"float16", "float", dispatch.PrecisionHigh, false},
		{"float16", "half", dispatch.PrecisionAuto, false},
		{"bfloat16", "half", 0, true},
		{"float32", "bfloat16", 0, true},
		{"float32", "float32", dispatch.PrecisionAuto, false},
	} {
		config := maps.Clone(llamaConfig)
		config["torch_dtype"] = c.stored
		skeleton, _, err := skeletonAt(filepath.Join(writeConfig(t, config), "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var o dispatch.Options
		err = (&sizeFlags{Dtype: c.asked}).applyDtype(skeleton, &o)
		if c.refused && (err == nil || !strings.Contains(err.Error(), "the weights are "+c.stored) || !strings.Contains(err.Error(), "--quantize")) {
			t.Errorf("%s of %s: %v", c.asked, c.stored, err)
		}
		if !c.refused && (err != nil || o.Precision != c.precision) {
			t.Errorf("%s of %s: precision %v, %v", c.asked, c.stored, o.Precision, err)
		}
	}
}
