package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// batchFile writes a file of n completions, and if spoilt is set, a line that is not a request and one with a mistake.
func batchFile(t *testing.T, n int, spoilt bool) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id": "r%d", "method": "POST", "url": "/v1/completions", "body": {"model": "heft-demo", "prompt": "A token is", "max_tokens": 4, "seed": %d}}`+"\n", i, i)
	}
	if spoilt {
		b.WriteString("\nnot JSON\n" + `{"custom_id": "bad", "method": "POST", "url": "/v1/completions", "body": {"prompt": 1}}` + "\n")
	}
	path := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// resultsOf reads a file of results by custom_id.
func resultsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		var r struct {
			CustomID string `json:"custom_id"`
			Response struct {
				Status int `json:"status_code"`
			}
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || out[r.CustomID] != "" {
			t.Fatalf("%q, again %v: %v", line, out[r.CustomID] != "", err)
		}
		out[r.CustomID] = line
	}
	return out
}

// TestBatchAnswersAFile: every line has one result, those of failed lines apart; a second run adds none.
func TestBatchAnswersAFile(t *testing.T) {
	in := batchFile(t, 12, true)
	out := strings.TrimSuffix(in, ".jsonl") + ".results.jsonl"
	for range 2 {
		_, notes, status := pipeInto(t, "", "batch", in, "--threads", "1")
		answers, failed := resultsOf(t, out), resultsOf(t, strings.TrimSuffix(out, ".jsonl")+".errors.jsonl")
		if status != 1 || !strings.Contains(notes, "answered 12 of 14 lines, 2 failed") || len(answers) != 12 || len(failed) != 2 || !strings.Contains(failed["bad"], `"status_code":400`) || !strings.Contains(failed[""], `"line":14`) {
			t.Fatalf("status %d, %s, %d answers, failed %v", status, notes, len(answers), failed)
		}
	}
}

// TestAnInterruptedBatchAnswersTheRemainingLines: a run that was ended keeps its answers; the next one answers the other lines. The last answer, which was cut
// off, is answered again.
func TestAnInterruptedBatchAnswersTheRemainingLines(t *testing.T) {
	in := batchFile(t, 6, false)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	if _, notes, status := pipeInto(t, "", "batch", in, "-o", out, "--threads", "1"); status != 0 || !strings.Contains(notes, "answered 6 of 6 lines: ") {
		t.Fatalf("status %d, %s", status, notes)
	}
	whole, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	kept := strings.SplitAfter(string(whole), "\n")
	cut := strings.Join(kept[:3], "") + kept[3][:len(kept[3])/2]
	if err := os.WriteFile(out, []byte(cut), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, notes, status := pipeInto(t, "", "batch", in, "-o", out, "--threads", "1"); status != 0 {
		t.Fatalf("status %d, %s", status, notes)
	}
	again, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if answers := resultsOf(t, out); len(answers) != 6 || !strings.HasPrefix(string(again), strings.Join(kept[:3], "")) {
		t.Errorf("%d answers, %s", len(answers), again)
	}
}

// TestBatchKeepsOtherFiles: files that have no results are not written, nor is the input.
func TestBatchKeepsOtherFiles(t *testing.T) {
	in := batchFile(t, 1, false)
	other := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{in, "-o", other}, 1, "exists and has no results of a batch"},
		{[]string{in, "--errors", other}, 1, "exists and has no results of a batch"},
		{[]string{in, "-o", in}, 2, "want three different files"},
		{[]string{filepath.Dir(in)}, 2, ": got a folder, pipe or device, want a JSONL file"},
		{[]string{in + "x"}, 2, "in.jsonlx"},
	} {
		if _, notes, status := pipeInto(t, "", append([]string{"batch", "--threads", "1"}, c.args...)...); status != c.status || !strings.Contains(notes, c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, notes)
		}
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}
