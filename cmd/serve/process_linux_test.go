package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLookedUpRowsAreEvicted: the embedding table of the disk tier does not stay in memory row
// by row as its rows are used; a long run would hold all of it, which the plan does not count.
func TestLookedUpRowsAreEvicted(t *testing.T) {
	folder := demoOnDisk(t)
	p := start(t, "--model", folder, "--device-map", "disk")
	defer func() { _ = p.Process.Kill(); <-p.end }()
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	body := fmt.Sprintf(`{"prompt":[%s],"max_tokens":1}`, strings.Join(ids, ","))
	answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if b, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", answer.StatusCode, b)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(filepath.Base(folder))+`/model.safetensors\n(?s:.*?)Rss: +(\d+) kB`).FindAllStringSubmatch(string(maps), -1) {
		n, _ := strconv.Atoi(m[1])
		total += n
	}
	if total > 128 {
		t.Errorf("%d KiB of the checkpoint are in memory, where nothing should be", total)
	}
}
