package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ask sends a request and returns the answer's object.
func (p *process) ask(t *testing.T, method, path, body string) (int, map[string]any) {
	t.Helper()
	status, text := p.request(t, method, path, body)
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return status, v
}

// TestStoredResponsesSurviveAKilledServer: with --store DIR; a file that is damaged is skipped with
// a line.
func TestStoredResponsesSurviveAKilledServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := start(t, "--store", dir)
	var ids []string
	previous := "null"
	for range 3 {
		status, r := p.ask(t, "POST", "/v1/responses", fmt.Sprintf(`{"input": "Hi", "max_output_tokens": 5, "temperature": 0, "previous_response_id": %s}`, previous))
		if status != 200 {
			t.Fatalf("%d %v", status, r)
		}
		ids = append(ids, r["id"].(string))
		previous = fmt.Sprintf("%q", r["id"])
	}
	want := fmt.Sprint(p.ask(t, "GET", "/v1/responses/"+ids[2], ""))
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.end
	damaged := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), `"id":"`+ids[0]) && !strings.Contains(string(b), ids[1]) {
			damaged = path
			err = os.WriteFile(path, b[:len(b)/2], 0o600)
		}
		return err
	})
	if err != nil || damaged == "" {
		t.Fatalf("the file of %s: %q, %v", ids[0], damaged, err)
	}

	p = start(t, "--store", dir, "--store-limit", "1MiB")
	if got := fmt.Sprint(p.ask(t, "GET", "/v1/responses/"+ids[2], "")); got != want {
		t.Errorf("retrieved %s, want %s", got, want)
	}
	if status, r := p.ask(t, "GET", "/v1/responses/"+ids[0], ""); status != 404 {
		t.Errorf("the damaged one: %d %v", status, r)
	}
	if status, r := p.ask(t, "POST", "/v1/responses", fmt.Sprintf(`{"input": "Hi", "previous_response_id": %q}`, ids[2])); status != 400 || !strings.Contains(fmt.Sprint(r), ids[0]) {
		t.Errorf("after a conversation whose beginning is damaged: %d %v", status, r)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.end
	if log := p.log.String(); !strings.Contains(log, "damaged") || !strings.Contains(log, filepath.Base(damaged)) {
		t.Errorf("the log does not name %s:\n%s", damaged, log)
	}
}

func TestFlagsOfTheStoreAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--store-limit", "lots"}, {"--store-limit", "0"}, {"--store", file}} {
		if status, _, stderr := invoke(append(args, "--port", "0")...); status != 2 || !strings.Contains(stderr, "--store") {
			t.Errorf("serve %v: status %d, %s", args, status, stderr)
		}
	}
}

func TestTokenizerInfoIsTheModelsFile(t *testing.T) {
	p := start(t)
	status, info := p.ask(t, "GET", "/tokenizer_info", "")
	if class, _ := info["tokenizer_class"].(string); status != 200 || class == "" || info["chat_template"] == nil {
		t.Errorf("%d %v", status, info)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.end
}

// TestABatchSurvivesAKilledServer: a server that is killed with kill -9 while a batch runs, twice, leaves the
// results; each line is in the output once.
func TestABatchSurvivesAKilledServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := start(t, "--store", dir, "--max-num-seqs", "2")
	var in strings.Builder
	const lines = 120
	for i := range lines {
		fmt.Fprintf(&in, `{"custom_id":"c%d","method":"POST","url":"/v1/completions","body":{"prompt":"Hi","max_tokens":30,"ignore_eos":true}}`+"\n", i)
	}
	form := "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n" + in.String() + "\r\n--b--\r\n"
	r, err := http.NewRequestWithContext(t.Context(), "POST", p.url+"/v1/files", strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ ID string }
	err = json.NewDecoder(answer.Body).Decode(&file)
	answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, batch := p.ask(t, "POST", "/v1/batches", fmt.Sprintf(`{"endpoint":"/v1/completions","input_file_id":%q,"completion_window":"24h"}`, file.ID))
	completed := func() float64 {
		_, batch = p.ask(t, "GET", fmt.Sprintf("/v1/batches/%s", batch["id"]), "")
		return batch["request_counts"].(map[string]any)["completed"].(float64)
	}
	for _, enough := range []float64{10, 30} {
		for completed() < enough {
			time.Sleep(time.Millisecond)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.end
		p = start(t, "--store", dir, "--max-num-seqs", "2")
	}
	for batch["status"] != "completed" {
		if n := completed(); batch["status"] == "failed" || n > lines {
			t.Fatalf("%v", batch)
		}
		time.Sleep(10 * time.Millisecond)
	}
	resp, err := http.Get(fmt.Sprintf("%s/v1/files/%s/content", p.url, batch["output_file_id"]))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		if n := strings.Count(string(text), fmt.Sprintf(`"custom_id":"c%d"`, i)); n != 1 {
			t.Errorf("line %d has %d results", i, n)
		}
	}
}
