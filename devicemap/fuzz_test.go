package devicemap

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// FuzzParsePolicy: whatever the text, a policy that can be written and read again, or an
// error; and a model reports errors in its paths.
func FuzzParsePolicy(f *testing.F) {
	for _, seed := range []string{"auto", "cpu", "0", "a=cpu,b.c[0:3]=disk", `{"a": 0, "": "cpu"}`,
		`[["a.b", "disk"]]`, `[0:2]=cpu`, "a=cuda:1", `{"a": "`, "model.layers.9999999999=0", "x[=cpu"} {
		f.Add(seed)
	}
	root := &meta.Module{Children: []*meta.Module{{Name: "a", Params: []*meta.Param{{Name: "w", Shape: []int{3}, DType: meta.Float32}}},
		{Name: "b", Children: []*meta.Module{{Name: "experts", Params: []*meta.Param{{Name: "up", Shape: []int{4, 2, 2}, DType: meta.Float32}}}}}}}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "devicemap: ") {
				t.Errorf("error without its package: %v", err)
			}
			return
		}
		b, err := json.Marshal(p.Pins)
		if err != nil {
			t.Fatal(err)
		}
		var back Map
		if err := json.Unmarshal(b, &back); err != nil || back.Len() != p.Pins.Len() {
			t.Fatalf("%s: %v", b, err)
		}
		budgets := []Budget{{Device: CPU, Limit: 1000}, {Device: GPU(0), Limit: 1000}}
		if plan, err := Solve(&meta.Model{Root: root}, budgets, p); err == nil {
			if missing := uncoveredParams(root, plan.Map); len(missing) > 0 {
				t.Errorf("%q leaves out %v", text, missing)
			}
		}
	})
}

// FuzzParseSize: a size is never negative, and ends in a unit.
func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"1GB", "1gb", " 3 GB", "1e3MB", "1_0MB", "infGB", "nanKiB", "-1MB", "0x1pGB", "9e99GiB", "ıGıB", "_1GB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		if size < 0 || float64(size) >= math.MaxInt64 {
			t.Errorf("%q is %d", text, size)
		}
		upper := strings.ToUpper(text)
		if !slices.ContainsFunc([]string{"KB", "MB", "GB", "KIB", "MIB", "GIB"}, func(u string) bool { return strings.HasSuffix(upper, u) }) {
			t.Errorf("%q has no unit", text)
		}
		if _, err := ParseMaxMemory("cpu=" + text); err != nil && !strings.Contains(text, ",") && strings.TrimSpace(text) == text {
			t.Errorf("%q alone is a size, in a list %v", text, err)
		}
	})
}

// FuzzMapJSON: a map that is read is written as it was read.
func FuzzMapJSON(f *testing.F) {
	f.Add([]byte(`{"a": 0, "b": "cpu"}`))
	f.Add([]byte(`[["a", 0], ["b[0:2]", "disk"]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Map
		if json.Unmarshal(data, &m) != nil {
			return
		}
		for _, form := range []any{m, JSONObject{m}} {
			b, err := json.Marshal(form)
			if err != nil {
				t.Fatal(err)
			}
			var back Map
			if err := json.Unmarshal(b, &back); err != nil || !slices.Equal(back.Entries(), m.Entries()) {
				t.Fatalf("%s: %v %v", b, back, err)
			}
		}
		m.Clean()
		CleanDeviceMap(m)
	})
}
