package meta

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// ropeOf is the rope of the first layer.
func ropeOf(t *testing.T, m *Model) *RopeSpec {
	t.Helper()
	return m.Root.Find("model.layers.0.self_attn").Spec.(*AttentionSpec).Rope
}

// TestFrequencies compares with transformers (scripts/make-rope-fixtures.py). Its
// vectorised power is now and then off by one in the last place, ours is rounded
// correctly, and yarn adds two of them: hence two units of tolerance.
func TestFrequencies(t *testing.T) {
	data, err := golden.Read("testdata/rope.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Config json.RawMessage
		Length int
		Inv    []float64
		Scale  float64
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	exact, all := 0, 0
	for _, c := range cases {
		r := ropeOf(t, build(t, c.Config))
		inv, scale := r.Frequencies(c.Length)
		if len(inv) != len(c.Inv) {
			t.Fatalf("%s: %d frequencies, want %d", c.Config, len(inv), len(c.Inv))
		}
		for i, want := range c.Inv {
			all++
			if off := math.Abs(float64(inv[i])-want) / want; off > 2.4e-7 {
				t.Errorf("%s: length %d: frequency %d is %v, want %v", c.Config, c.Length, i, inv[i], want)
			} else if off == 0 {
				exact++
			}
		}
		if !(math.Abs(scale-c.Scale) <= 1e-12) {
			t.Errorf("%s: scale %v, want %v", c.Config, scale, c.Scale)
		}
	}
	if exact < all*9/10 {
		t.Errorf("only %d of %d frequencies are the very same", exact, all)
	}
}

// TestRopesThatDependOnOddDimensions: dynamic and YaRN ropes took the even number that an odd number of
// dimensions is rounded up to. With 3, transformers makes one ramp of YaRN for both frequencies.
func TestRopesThatDependOnOddDimensions(t *testing.T) {
	for _, c := range []struct {
		fields string
		want   []float64
	}{
		{`"head_dim": 10, "max_position_embeddings": 16, "rope_scaling": {"rope_type": "dynamic", "factor": 2}`, []float64{1, 9.9684e-03, 9.9370e-05}},
		{`"head_dim": 6, "rope_theta": 500, "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8}`, []float64{1, 0.0158740}},
	} {
		inv, _ := ropeOf(t, build(t, []byte(`{"model_type": "glm", "partial_rotary_factor": 0.5, `+c.fields+`}`))).Frequencies(40)
		if !slices.EqualFunc(inv, c.want, func(got float32, want float64) bool { return math.Abs(float64(got)/want-1) < 1e-4 }) {
			t.Errorf("%s: frequencies %v, want %v", c.fields, inv, c.want)
		}
	}
}

func TestContext(t *testing.T) {
	for _, c := range []struct {
		name, fields string
		want         int
	}{
		{"stated", `"max_position_embeddings": 4096`, 4096},
		{"default of the class", `"vocab_size": 10`, 2048},
		{"linear does not extend", `"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4}`, 4096},
		{"yarn of a stated maximum that is the trained one",
			`"max_position_embeddings": 32, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}`, 128},
		{"yarn without the trained length", `"max_position_embeddings": 32, "rope_scaling": {"type": "yarn", "factor": 4.0}`, 128},
		{"yarn that is stated already",
			`"max_position_embeddings": 163840, "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}`, 163840},
		{"yarn of a maximum between",
			`"max_position_embeddings": 40960, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}`, 131072},
		{"llama3", `"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}`, 131072},
	} {
		m := build(t, []byte(`{"model_type": "llama", `+c.fields+`}`))
		if got := m.Root.Spec.(*CausalLMSpec).Context; got != c.want {
			t.Errorf("%s: context %d, want %d", c.name, got, c.want)
		}
	}
}

// TestRopeDialects checks that both dialects, and the odd mixtures of them, give the
// same rope.
func TestRopeDialects(t *testing.T) {
	const linear = `"rope_type": "linear", "factor": 4.0`
	for _, fields := range []string{
		`"rope_theta": 500000.0, "rope_scaling": {` + linear + `}`,
		`"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4}`,
		`"rope_parameters": {"rope_theta": 500000, ` + linear + `}`,
		`"rope_scaling": null, "rope_parameters": {"rope_theta": 500000, ` + linear + `}`,
		`"rope_scaling": {}, "rope_theta": 1, "rope_parameters": {"rope_theta": 500000, ` + linear + `}`,
		`"rope_theta": 500000, "rope_parameters": {"type": "linear", "factor": 4}`,
	} {
		r := ropeOf(t, build(t, []byte(`{"model_type": "llama", `+fields+`}`)))
		if r.Type != RopeLinear || r.Theta != 500000 || r.Factor != 4 || r.Dim != 128 {
			t.Errorf("%s: %+v", fields, r)
		}
	}
}

// TestRopeOriginalBesideScaling: the field of the whole config goes before the one of
// the scaling, as in Phi-3's files.
func TestRopeOriginalBesideScaling(t *testing.T) {
	r := ropeOf(t, build(t, []byte(`{"model_type": "llama", "original_max_position_embeddings": 64,
		"rope_scaling": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 128}}`)))
	if r.Original != 64 {
		t.Errorf("original %d, want 64", r.Original)
	}
}

// TestYarnOfLayerTypesTruncates: truncate has no effect in parameters of one kind of layers, as in transformers, which reads it
// next to the kinds.
func TestYarnOfLayerTypesTruncates(t *testing.T) {
	const fields = `"rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": false}}`
	if r := ropeOf(t, build(t, []byte(`{"model_type": "olmo3", "layer_types": ["full_attention"], "num_hidden_layers": 1, `+fields))); r.NoTruncate {
		t.Errorf("olmo3: truncate is false: %+v", r)
	}
	if r := ropeOf(t, build(t, []byte(`{"model_type": "llama", `+fields))); !r.NoTruncate {
		t.Errorf("llama: truncate is true: %+v", r)
	}
}
