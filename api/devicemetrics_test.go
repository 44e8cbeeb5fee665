package api_test

import (
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestMetricsOfGPUs: a GPU reports its memory, copies and time; the host next to it only its time.
func TestMetricsOfGPUs(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	s := serveWith(t, api.Options{Models: []*generate.Model{m}, Status: func() dispatch.Status {
		return dispatch.Status{Devices: []dispatch.DeviceUse{{Device: devicemap.CPU, BusySeconds: 1.5},
			{Device: "0", Bytes: 5, ToDeviceBytes: 6, ToHostBytes: 7, CopySeconds: 0.5, BusySeconds: 2.5}}}
	}})
	_, text := s.text("GET", "/metrics", nil)
	var got []string
	for line := range strings.SplitSeq(text, "\n") {
		for _, name := range []string{"heft_device_", "heft_link_", "heft_copy_"} {
			if strings.HasPrefix(line, name) {
				head, labels, _ := strings.Cut(line, "{")
				_, device, _ := strings.Cut(labels, `device="`)
				device, _, _ = strings.Cut(device, `"`)
				direction := ""
				if _, after, ok := strings.Cut(labels, `direction="`); ok {
					direction, _, _ = strings.Cut(after, `"`)
				}
				got = append(got, strings.TrimSpace(head+" "+device+" "+direction)+" "+line[strings.LastIndex(line, " ")+1:])
			}
		}
	}
	want := "heft_copy_seconds_total 0 0.5\nheft_device_busy_seconds_total 0 2.5\nheft_device_busy_seconds_total cpu 1.5\n" +
		"heft_device_bytes 0 5\nheft_link_bytes_total 0 to_device 6\nheft_link_bytes_total 0 to_host 7"
	if g := strings.Join(got, "\n"); g != want {
		t.Errorf("got\n%s\nwant\n%s", g, want)
	}
}
