package gguf

import "testing"

// TestOneRuleForNamesOfModels: the hub and the loader each had a rule of their own, and the hub took
// importance matrices for models.
func TestOneRuleForNamesOfModels(t *testing.T) {
	for name, want := range map[string]bool{
		"m.gguf":                       true,
		"M-Q4_K_M.GGUF":                true,
		"mmproj/m-Q4_K_M.gguf":         true, // only the last element counts
		"m-Q4_K_M-00001-of-00002.gguf": true,
		"m-imatrix-Q4_K_M.gguf":        true, // a model quantised with a matrix
		"imatrixed.gguf":               true,
		"mmproj-F16.gguf":              false,
		"sub/m-MMPROJ-F16.gguf":        false,
		"imatrix.gguf":                 false,
		"imatrix_m.gguf":               false,
		"sub/m.imatrix.gguf":           false,
		".m.gguf":                      false,
		"m.safetensors":                false,
		"m.gguf.part":                  false,
	} {
		if got := MayBeModel(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
