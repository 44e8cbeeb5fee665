package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/testenv"
)

// weightBytes returns how many bytes of the shard in folder a process has mapped in memory, and how
// many bytes it has read with read calls.
func weightBytes(t *testing.T, pid int, folder string) (mapped, read int64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	testenv.Need(t, "proc", err == nil, "/proc/PID/smaps, which shows mapped pages")
	shard := regexp.QuoteMeta(filepath.Base(folder)) + `/model.safetensors\n(?s:.*?)Rss: +(\d+) kB`
	for _, m := range regexp.MustCompile(shard).FindAllStringSubmatch(string(maps), -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		mapped += n << 10
	}
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	testenv.Need(t, "proc", err == nil, "/proc/PID/io, which counts reads")
	if _, err := fmt.Sscanf(string(io), "rchar: %d", &read); err != nil {
		t.Fatal(err)
	}
	return mapped, read
}

// get returns the status of a GET and its body.
func (p *process) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return p.request(t, http.MethodGet, path, "")
}

// TestALazyServerReadsNothingAhead: an idle server read and copied everything, and no flag was
// against it. With --lazy it maps and reads nothing of the weights, and hashes no file; a request
// reads them.
func TestALazyServerReadsNothingAhead(t *testing.T) {
	folder := demoOnDisk(t)
	shard, err := os.Stat(filepath.Join(folder, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tier, quantize string }{{"cpu", "none"}, {"disk", "none"}, {"cpu", "q8_0"}} {
		t.Run(c.tier+" "+c.quantize, func(t *testing.T) {
			p := start(t, "--model", folder, "--device-map", c.tier, "--quantize", c.quantize, "--lazy")
			defer func() { _ = p.Process.Kill(); <-p.end }()
			if code, body := p.get(t, "/ready"); code != http.StatusOK {
				t.Errorf("/ready: %d %s", code, body)
			}
			_, before := weightBytes(t, p.Process.Pid, folder)
			time.Sleep(1500 * time.Millisecond) // the background of other servers reads, hashes and probes meanwhile
			mapped, after := weightBytes(t, p.Process.Pid, folder)
			if mapped > 128<<10 {
				t.Errorf("an idle server has %d bytes of %d in memory", mapped, shard.Size())
			}
			if after-before > 128<<10 {
				t.Errorf("an idle server has read %d bytes", after-before)
			}
			answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[5,6,7],"max_tokens":3}`))
			if err != nil {
				t.Fatalf("%v\n%s", err, p.log)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Fatalf("status %d", answer.StatusCode)
			}
			mapped, read := weightBytes(t, p.Process.Pid, folder)
			if got := mapped + read - after; c.quantize == "none" && got < shard.Size()/2 {
				t.Errorf("a request has read %d bytes of %d: the test counts nothing", got, shard.Size())
			}
		})
	}
}
