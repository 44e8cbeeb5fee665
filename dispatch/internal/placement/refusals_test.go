package placement

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/nn"
)

// TestOnlyTheFirstRefusedUnitHadAWarning: units that stay on the CPU for another reason than the first one had
// no warning.
func TestOnlyTheFirstRefusedUnitHadAWarning(t *testing.T) {
	var r refusals
	for _, u := range []struct{ path, reason string }{
		{"model.embed_tokens", "no kernels for iq2_xs"}, {"model.layers.0", "no kernels for states"}, {"model.layers.1", "no kernels for iq2_xs"},
		{"model.layers.2", "no kernels for iq2_xs"}, {"model.layers.3", "no kernels for states"}, {"", "no room"},
	} {
		r.add(&nn.Unit{Path: u.path}, u.reason)
	}
	want := []string{"model.embed_tokens and 2 more units stay on the cpu: no kernels for iq2_xs",
		"model.layers.0 and 1 more unit stay on the cpu: no kernels for states", "the model stays on the cpu: no room"}
	if got := r.warnings(); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
