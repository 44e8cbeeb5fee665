package meta

import (
	"strings"
	"testing"
)

const hybridLayers = `{"model_type": "zamba2", "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "n_mamba_heads": 4, "vocab_size": 32,
	"num_hidden_layers": 5, "layers_block_type": ["mamba", "hybrid", "hybrid", "hybrid", "hybrid"], "num_mem_blocks": 2, "adapter_rank": 3`

// TestSharedBlocksOfZamba2: layers that use a transformer block have the parameters of the layer that uses it first, where
// the config ties weights or the checkpoint has them once, under the names of any of these layers.
func TestSharedBlocksOfZamba2(t *testing.T) {
	const weight = ".shared_transformer.self_attn.q_proj.weight"
	first, later := "model.layers.1"+weight, "model.layers.3"+weight
	for _, c := range []struct {
		name, more string
		header     CheckpointHeader
		tied       bool
		source     string
	}{
		{"tied by the config", "}", nil, true, first},
		{"not tied by the config", `, "tie_word_embeddings": false}`, nil, false, first},
		{"under the first name", "}", fakeHeader{first: Float32}, true, first},
		{"under a later name", "}", fakeHeader{later: Float32}, true, later},
		{"under both names", "}", fakeHeader{first: Float32, later: Float32}, false, first},
	} {
		cfg, err := ReadConfig([]byte(hybridLayers + c.more))
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(cfg, c.header)
		if err != nil {
			t.Fatal(err)
		}
		q := func(layer string) *Param {
			return m.Root.Find("model.layers." + layer + ".shared_transformer.self_attn.q_proj").Param("weight")
		}
		if tied := q("3").Resolve() == q("1"); tied != c.tied {
			t.Errorf("%s: tied is %v", c.name, tied)
		}
		if got := q("1").Sources[0].Tensor; got != c.source {
			t.Errorf("%s: filled by %s, want %s", c.name, got, c.source)
		}
		if q("2").Resolve() == q("1") {
			t.Errorf("%s: the second block is the first", c.name)
		}
	}
}

// TestAdaptersOfOtherUsesAreUnread: a layer of Zamba2 has the adapters of all layers that use its block, and reads its own.
func TestAdaptersOfOtherUsesAreUnread(t *testing.T) {
	cfg, err := ReadConfig([]byte(hybridLayers + `, "use_shared_attention_adapter": true}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for layer, own := range map[string]string{"1": ".0", "2": ".1", "3": ".2", "4": ".3"} {
		read := 0
		for path, n := range m.Root.Find("model.layers." + layer).WithoutUnread().Walk() {
			if _, use, found := strings.Cut(path, "_adapter_list"); found && n.Class == "Linear" {
				if read++; !strings.HasPrefix(use, own+".") {
					t.Errorf("layer %s reads %s", layer, path)
				}
			}
		}
		if read != 8 {
			t.Errorf("layer %s reads %d maps of adapters, want 8", layer, read)
		}
	}
	if plain := m.Root.Find("model.layers.0"); plain.WithoutUnread() != plain {
		t.Error("a layer that reads all of its parameters was copied")
	}
}
