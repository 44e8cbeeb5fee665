package devicemap

import (
	"testing"

	"github.com/heftai/heft/meta"
)

// TestBlocksThatRunTwiceAreReadTwice: a plan counts the bytes of a block that a token passes several times once, and its reads each time.
func TestBlocksThatRunTwiceAreReadTwice(t *testing.T) {
	read := func(cycles string) (weights, reads int64) {
		config, err := meta.ReadConfig([]byte(`{"model_type": "hrm_text", "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "head_dim": 4,
			"vocab_size": 16, "num_hidden_layers": 2, "H_cycles": 1, "L_cycles": ` + cycles + `}`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := meta.New(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Solve(m, []Budget{{Device: CPU, Limit: 1 << 30}}, Policy{Kind: Manual, Pins: NewMap(Entry{"", Disk})})
		if err != nil {
			t.Fatal(err)
		}
		return plan.Device(Disk).WeightsBytes, plan.DiskBytesPerToken
	}
	once, onceRead := read("1")
	thrice, thriceRead := read("3")
	low := int64(0)
	config, err := meta.ReadConfig([]byte(`{"model_type": "hrm_text", "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "head_dim": 4, "vocab_size": 16, "num_hidden_layers": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Root.Find("model.L_module").AllParams() {
		low += p.Bytes()
	}
	if thrice != once || thriceRead != onceRead+2*low {
		t.Errorf("%d bytes with %d read, and with two more runs of %d of them %d with %d", once, onceRead, low, thrice, thriceRead)
	}
}
