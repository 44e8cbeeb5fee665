package gpu_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
)

// metered is a device that counts.
type metered struct{ *cpu.Backend }

func (metered) Use() backend.Use {
	return backend.Use{Bytes: 5, Own: 4, ToDevice: 6, ToHost: 7, CopySeconds: 8}
}

// TestDeviceUseNamesTheHostAndEachGPU: a model on a GPU and the CPU counts the time of both, and what the
// GPU counts is in the status and in the plan's JSON. A model of the host alone has none of it.
func TestDeviceUseNamesTheHostAndEachGPU(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1}, 2, func(int, backend.Backend) (backend.Backend, error) {
		b, err := cpu.New(cpu.Options{Threads: 1})
		return metered{b}, err
	}, nil)
	ids, prompt := dispatchtest.LawIDs()
	for name, devices := range map[string]devicemap.Map{
		"host": devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
		"GPU":  devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}, devicemap.Entry{Path: "model.layers.0", Device: "1"}),
	} {
		m, err := dispatch.New(skeleton, checkpoint, devices, o)
		if err != nil {
			t.Fatal(err)
		}
		dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
		report := dispatch.NewReport(m.Plan())
		report.DeviceUse = m.DeviceUse()
		text, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		used := m.Status().Devices
		m.Close()
		if name == "host" {
			if used != nil || strings.Contains(string(text), "device_use") {
				t.Errorf("a model of the host alone uses %v: %s", used, text)
			}
			continue
		}
		if len(used) != 2 || used[0].Device != devicemap.CPU || used[1].Device != "1" {
			t.Fatalf("the model uses %v, want the CPU and GPU 1", used)
		}
		if used[0].BusySeconds <= 0 || used[1].BusySeconds <= 0 {
			t.Errorf("modules took no time on one of %v", used)
		}
		var layer int64
		for _, p := range skeleton.Root.Find("model.layers.0").AllParams() {
			layer += p.Bytes()
		}
		if used[0].WeightBytes != 0 || used[1].WeightBytes != layer {
			t.Errorf("%d and %d bytes of weights are on the host and the GPU, want 0 and %d", used[0].WeightBytes, used[1].WeightBytes, layer)
		}
		used[1].BusySeconds, used[1].WeightBytes = 0, 0
		if want := (dispatch.DeviceUse{Device: "1", Bytes: 5, OwnBytes: 4, ToDeviceBytes: 6, ToHostBytes: 7, CopySeconds: 8}); used[1] != want {
			t.Errorf("GPU 1: %+v, want %+v", used[1], want)
		}
		if !strings.Contains(string(text), fmt.Sprintf(`"device":1,"bytes":5,"weight_bytes":%d,"own_bytes":4,"to_device_bytes":6,"to_host_bytes":7,"copy_seconds":8`, layer)) {
			t.Errorf("the plan's JSON does not show the GPU: %s", text)
		}
	}
}
