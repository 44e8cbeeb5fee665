package api

import (
	"encoding/json"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// TestActivityHasTheWeightsOfGPUs: tiers were the host's memory and the disk alone.
func TestActivityHasTheWeightsOfGPUs(t *testing.T) {
	st := dispatch.Status{TierBytes: map[devicemap.Device]int64{devicemap.CPU: 2},
		Devices: []dispatch.DeviceUse{{Device: devicemap.CPU}, {Device: "0", WeightBytes: 3}, {Device: "1"}}}
	got, err := json.Marshal(tiersOf(st, dispatch.Activity{MemoryBytes: 7}))
	if want := `[{"tier":0,"bytes":3,"read_bytes":0},{"tier":"cpu","bytes":2,"read_bytes":7}]`; err != nil || string(got) != want {
		t.Errorf("%v: got %s, want %s", err, got, want)
	}
}
