package kernels_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
)

func TestSelect(t *testing.T) {
	for _, name := range append(kernels.Names(), "") {
		if s, err := kernels.Select(name); err != nil || name != "" && s.Name != name {
			t.Errorf("Select(%q) is %v, %v", name, s, err)
		}
	}
	if best, err := kernels.Select(""); err != nil || best.Name != kernels.Names()[0] {
		t.Errorf("the best variant is %v, %v", best, err)
	}
	if _, err := kernels.Select("sse"); err == nil {
		t.Error("an unknown variant was selected")
	}
	if !slices.Contains(kernels.Names(), "go") {
		t.Error("the Go variant is missing")
	}
}
