package meta

import (
	"fmt"
	"testing"
)

// TestParametersOfSeveralDTypesHadTheSizeOfTheFirst: a parameter that several tensors of different dtypes fill was
// planned as if all had the dtype of the first.
func TestParametersOfSeveralDTypesHadTheSizeOfTheFirst(t *testing.T) {
	const gate, up = "model.layers.3.moe.gate_proj.weight", "model.layers.3.moe.up_proj.weight"
	const each = 288 * 1280 * 4096 // weights of each
	for _, c := range []struct {
		gate, up DType
		want     int64
	}{
		{BFloat16, BFloat16, each * (2 + 2)}, {BFloat16, Float32, each * (2 + 4)}, {Float32, BFloat16, each * (4 + 2)},
	} {
		p := modelOf(t, fmt.Sprintf(step35, ""), fakeHeader{gate: c.gate, up: c.up}).Root.Find("model.layers.3.mlp.experts").Param("gate_up_proj")
		if got := p.Bytes(); got != c.want || p.Quantised() {
			t.Errorf("%v and %v: %d bytes, want %d; quantised %v", c.gate, c.up, got, c.want, p.Quantised())
		}
	}
}

// TestRowsOfATensorOfAnotherDTypeAreCounted: sources that select rows count these alone, and those of several
// experts count all.
func TestRowsOfATensorOfAnotherDTypeAreCounted(t *testing.T) {
	tr := tree{header: fakeHeader{"rows": BFloat16, "all": Float32, "0": Float32}}
	sources := []TensorSource{
		{Tensor: "all", Into: RowRange{0, 2}},
		{Tensor: "rows", Into: RowRange{2, 6}, From: RowRange{8, 12}},
	}
	if got, want := tr.stored(sources, []int{6, 5}, Float32), int64(2*5*4+4*5*2); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	sources = []TensorSource{{Tensor: "rows", Stack: 3, Each: 4}, {Tensor: "{}", Stack: 3, Into: RowRange{4, 6}}}
	if got, want := tr.stored(sources[:1], []int{3, 4, 5}, Float32), int64(3*4*5*2); got != want {
		t.Errorf("all experts in a tensor: %d bytes, want %d", got, want)
	}
	if got, want := tr.stored(sources[1:], []int{3, 6, 5}, BFloat16), int64(3*2*5*4); got != want {
		t.Errorf("a tensor for each expert: %d bytes, want %d", got, want)
	}
}
