package devicemap

import (
	"testing"

	"github.com/heftai/heft/meta"
)

// sharing is a model of Zamba2 in which three of six layers use one transformer block.
func sharing(t *testing.T) *meta.Model {
	t.Helper()
	config, err := meta.ReadConfig([]byte(`{"model_type": "zamba2", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "n_mamba_heads": 4,
		"vocab_size": 128, "num_hidden_layers": 6, "layers_block_type": ["mamba", "mamba", "hybrid", "hybrid", "mamba", "hybrid"], "adapter_rank": 2,
		"use_mem_rope": false, "dtype": "bfloat16"}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSharedWeightsCountOnce: a plan places weights that several layers use once, and counts that each of these layers reads
// them. Adapters that one of the layers uses alone are read once.
func TestSharedWeightsCountOnce(t *testing.T) {
	m := sharing(t)
	var weights, reads int64
	for path, p := range m.Root.AllParams() {
		if p.SameAs == nil {
			weights += p.Bytes()
		}
		if module := m.Root.Find(path[:len(path)-len(p.Name)-1]); module.Kind != meta.KindEmbedding && !module.Unread() {
			reads += p.Bytes() // a tied head is read, a lookup is not
		}
	}
	plan, err := Solve(m, []Budget{{Device: CPU, Limit: 1 << 30}}, Policy{Kind: Manual, Pins: NewMap(Entry{"", Disk})})
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Device(Disk).WeightsBytes; got != weights {
		t.Errorf("%d bytes of weights, want %d", got, weights)
	}
	if plan.DiskBytesPerToken != reads {
		t.Errorf("a token reads %d bytes, want %d", plan.DiskBytesPerToken, reads)
	}
}

// TestSharedWeightsStayInMemoryFirst: where memory has room for a matrix that several layers use, no other weights take it,
// because they save fewer reads. It streams alone where only the rest of its layer fits.
func TestSharedWeightsStayInMemoryFirst(t *testing.T) {
	m := sharing(t)
	bands := map[*meta.Param]int64{}
	for _, p := range m.Root.AllParams() {
		if len(p.Shape) == 2 {
			bands[p.Resolve()] = 1 << 10
		}
	}
	fits := int64(0)
	for limit := int64(8 << 10); limit < 300<<10; limit += 1 << 10 { // with more, a window to read ahead takes most of it
		plan, err := Solve(m, []Budget{{Device: CPU, Limit: limit}}, Policy{Bands: bands})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := plan.Map.Device("model.layers.2.shared_transformer.self_attn.q_proj.weight")
		switch {
		case at == CPU && fits == 0:
			fits = limit
		case at != CPU && fits > 0:
			t.Fatalf("shared weights are on the cpu within %d bytes, and on %s within %d: %s", fits, at, limit, plan.Map)
		}
	}
	if fits == 0 || fits > 200<<10 {
		t.Errorf("shared weights stay from %d bytes on, want less than 200 KiB", fits)
	}
}
