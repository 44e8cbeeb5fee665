package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// batchServer serves the demo model with files and batches in dir. stop ends it as a shutdown does.
func batchServer(t *testing.T, dir string, limit int64, o engine.Options, keys ...string) (s *server, stop func()) {
	t.Helper()
	kept, err := store.Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	b, err := batches.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	m, _, _ := generatetest.Demo(t, o)
	s = serveWith(t, api.Options{Models: []*generate.Model{m}, APIKeys: keys, Store: kept, Batches: b})
	t.Cleanup(b.Stop)
	return s, b.Stop
}

// upload posts a file and returns the answer.
func (s *server) upload(purpose, content string) (int, map[string]any) {
	s.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("file", "../../in.jsonl")
	if err == nil {
		_, err = io.WriteString(part, content)
	}
	if err == nil && purpose != "" {
		err = w.WriteField("purpose", purpose) // after the file, as some clients send it
	}
	if err != nil || w.Close() != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.URL+"/v1/files", &body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", w.FormDataContentType())
	if s.key != "" {
		r.Header.Set("Authorization", "Bearer "+s.key)
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var v map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, v
}

// begin uploads a file and makes a batch of it.
func (s *server) begin(endpoint, content string) (id string) {
	s.t.Helper()
	_, f := s.upload("batch", content)
	status, text := s.text("POST", "/v1/batches", map[string]any{"endpoint": endpoint, "input_file_id": f["id"], "completion_window": "24h", "metadata": map[string]string{"a": "b"}})
	if status != 200 {
		s.t.Fatal(text)
	}
	return object(s.t, text)["id"].(string)
}

func object(t testing.TB, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// ended waits until a batch has ended.
func (s *server) ended(id string) map[string]any {
	s.t.Helper()
	for range 3000 {
		_, text := s.text("GET", "/v1/batches/"+id, nil)
		b := object(s.t, text)
		switch b["status"] {
		case "completed", "failed", "expired", "cancelled":
			return b
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatal("the batch does not end")
	return nil
}

// results are the lines of a file of results by their custom_id.
func (s *server) results(id any) map[string]map[string]any {
	s.t.Helper()
	out := map[string]map[string]any{}
	if id == nil {
		return out
	}
	_, text := s.text("GET", fmt.Sprintf("/v1/files/%s/content", id), nil)
	for line := range strings.Lines(text) {
		r := object(s.t, line)
		name := r["custom_id"].(string)
		if out[name] != nil {
			s.t.Errorf("two results of %s", name)
		}
		out[name] = r
	}
	return out
}

func chatLine(i, tokens int) string {
	return fmt.Sprintf(`{"custom_id":"c%d","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Say <%d>"}],"max_tokens":%d,"temperature":0}}`+"\n", i, i, tokens)
}

// passes counts the passes of an engine.
type passes struct{ n, busiest atomic.Int64 }

func (p *passes) Queued(time.Duration)        {}
func (p *passes) FirstToken(time.Duration)    {}
func (p *passes) NextToken(time.Duration)     {}
func (p *passes) Finished(engine.ChoiceStats) {}
func (p *passes) Step(s engine.StepStats) {
	p.n.Add(1)
	p.busiest.Store(max(p.busiest.Load(), int64(s.Rows)))
}

// TestABatchIsAnsweredInSharedPasses: each line gets the answer that its endpoint gives, failures go to the error
// file, and a pass over the weights serves many lines.
func TestABatchIsAnsweredInSharedPasses(t *testing.T) {
	var seen passes
	s, _ := batchServer(t, t.TempDir(), 1<<24, engine.Options{Observer: &seen})
	const lines, tokens = 32, 8
	var in strings.Builder
	for i := range lines {
		in.WriteString(chatLine(i, tokens))
	}
	in.WriteString("\n" + strings.Replace(strings.Replace(chatLine(99, 1), `"temperature":0`, `"temperature":"hot"`, 1), "\n", "", 1)) // without an end of line
	b := s.ended(s.begin("/v1/chat/completions", in.String()))
	if b["status"] != "completed" || fmt.Sprint(b["request_counts"]) != "map[completed:32 failed:1 total:33]" || fmt.Sprint(b["metadata"]) != "map[a:b]" {
		t.Fatalf("%v", b)
	}
	if n := seen.n.Load(); n > lines*tokens/4 {
		t.Errorf("%d passes for %d lines of %d tokens, at most %d at once", n, lines, tokens, seen.busiest.Load())
	}
	if total, _ := at(b, "usage", "output_tokens").(float64); b["model"] == nil || total < lines || total > lines*tokens {
		t.Errorf("model %v, usage %v", b["model"], b["usage"])
	}
	out := s.results(b["output_file_id"])
	for i := range lines {
		var line struct{ Body any }
		if err := json.Unmarshal([]byte(chatLine(i, tokens)), &line); err != nil {
			t.Fatal(err)
		}
		_, text := s.text("POST", "/v1/chat/completions", line.Body)
		want := object(t, text)["choices"]
		got := out[fmt.Sprintf("c%d", i)]["response"].(map[string]any)
		if body := got["body"].(map[string]any); got["status_code"] != 200.0 || fmt.Sprint(body["choices"]) != fmt.Sprint(want) {
			t.Fatalf("line %d: %v, want %v", i, got, want)
		}
	}
	wrong := s.results(b["error_file_id"])["c99"]
	if wrong["line"] != 34.0 || wrong["response"].(map[string]any)["status_code"] != 400.0 || !strings.Contains(fmt.Sprint(wrong), "temperature") {
		t.Errorf("%v", wrong)
	}
}

// TestBatchesOfEachEndpoint: completions, embeddings and responses.
func TestBatchesOfEachEndpoint(t *testing.T) {
	s, _ := batchServer(t, t.TempDir(), 1<<24, engine.Options{})
	for endpoint, body := range map[string]string{
		"/v1/completions": `{"prompt":"Hi","max_tokens":2}`,
		"/v1/embeddings":  `{"input":"Hi"}`,
		"/v1/responses":   `{"input":"Hi","max_output_tokens":2}`,
	} {
		b := s.ended(s.begin(endpoint, fmt.Sprintf(`{"custom_id":"x","method":"POST","url":%q,"body":%s}`, endpoint, body)))
		status, _ := s.text("POST", endpoint, body)
		out := s.results(b["output_file_id"])["x"]
		if status != 200 {
			out = s.results(b["error_file_id"])["x"]
		}
		if got := out["response"].(map[string]any)["status_code"]; got != float64(status) {
			t.Errorf("%s: %v, want the status %d", endpoint, out, status)
		}
	}
}

// TestABadFileFailsWithLineNumbers: nothing of it is answered.
func TestABadFileFailsWithLineNumbers(t *testing.T) {
	s, _ := batchServer(t, t.TempDir(), 1<<24, engine.Options{})
	good := chatLine(1, 1)
	for name, c := range map[string]struct{ in, want string }{
		"no JSON":        {good + "\n{]\n", "[invalid_json_line 3]"},
		"a list":         {"[1]\n" + good, "[invalid_json_line 1]"},
		"no custom_id":   {strings.Replace(good, "custom_id", "id", 1), "[missing_required_parameter 1]"},
		"another method": {strings.Replace(good, "POST", "GET", 1), "[invalid_method 1]"},
		"another url":    {good + strings.Replace(chatLine(2, 1), "chat/", "", 1), "[mismatched_endpoint 2]"},
		"no body":        {strings.Replace(good, `"body"`, `"boby"`, 1), "[missing_required_parameter 1]"},
		"a stream":       {strings.Replace(good, `"max_tokens"`, `"stream":true,"max_tokens"`, 1), "[invalid_value 1]"},
		"twice":          {good + chatLine(2, 1) + good, "[duplicate_custom_id 3]"},
		"several":        {"x\n" + good + "y\n" + good, "[invalid_json_line 1 invalid_json_line 3 duplicate_custom_id 4]"},
		"empty":          {"\n \n", "[empty_file <nil>]"},
	} {
		b := s.ended(s.begin("/v1/chat/completions", c.in))
		var got []any
		for _, e := range b["errors"].(map[string]any)["data"].([]any) {
			e := e.(map[string]any)
			got = append(got, e["code"], e["line"])
		}
		if b["status"] != "failed" || fmt.Sprint(got) != c.want || b["output_file_id"] != nil {
			t.Errorf("%s: %v %v, want %s", name, b["status"], got, c.want)
		}
	}
}

// TestABatchContinuesAfterARestart: with the lines that are left, and no line twice, also where the last result
// was torn.
func TestABatchContinuesAfterARestart(t *testing.T) {
	dir := t.TempDir()
	s, stop := batchServer(t, dir, 1<<24, engine.Options{MaxBatch: 2})
	const lines = 40
	var in strings.Builder
	for i := range lines {
		in.WriteString(chatLine(i, 4))
	}
	id := s.begin("/v1/chat/completions", in.String())
	for {
		_, text := s.text("GET", "/v1/batches/"+id, nil)
		if object(t, text)["request_counts"].(map[string]any)["completed"].(float64) >= 5 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	data, err := filepath.Glob(filepath.Join(dir, "files", "*.data"))
	if err != nil {
		t.Fatal(err)
	}
	torn := false
	for _, path := range data {
		if b, err := os.ReadFile(path); err == nil && bytes.HasPrefix(b, []byte(`{"id":"batch_req_`)) && bytes.Count(b, []byte("\n")) < lines {
			torn = os.WriteFile(path, b[:len(b)-9], 0o600) == nil
		}
	}
	s, _ = batchServer(t, dir, 1<<24, engine.Options{})
	b := s.ended(id)
	if out := s.results(b["output_file_id"]); !torn || len(out) != lines || b["status"] != "completed" || fmt.Sprint(b["request_counts"]) != "map[completed:40 failed:0 total:40]" {
		t.Errorf("torn %v: %d results, %v", torn, len(out), b)
	}
}

// TestACancelledBatchKeepsItsResults: and cannot be cancelled again.
func TestACancelledBatchKeepsItsResults(t *testing.T) {
	s, _ := batchServer(t, t.TempDir(), 1<<24, engine.Options{MaxBatch: 1})
	var in strings.Builder
	for i := range 200 {
		in.WriteString(chatLine(i, 20))
	}
	id := s.begin("/v1/chat/completions", in.String())
	for {
		_, text := s.text("GET", "/v1/batches/"+id, nil)
		b := object(t, text)
		if b["request_counts"].(map[string]any)["completed"].(float64) >= 1 {
			if status, _ := s.text("DELETE", fmt.Sprintf("/v1/files/%s", b["input_file_id"]), nil); status != 400 {
				t.Errorf("deleting the input of a batch that runs: %d", status)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	if status, text := s.text("POST", "/v1/batches/"+id+"/cancel", nil); status != 200 || object(t, text)["status"] != "cancelling" {
		t.Errorf("%d %s", status, text)
	}
	b := s.ended(id)
	out := s.results(b["output_file_id"])
	if n := b["request_counts"].(map[string]any)["completed"].(float64); b["status"] != "cancelled" || n < 1 || n >= 200 || len(out) != int(n) {
		t.Errorf("%d results: %v", len(out), b)
	}
	if status, _ := s.text("POST", "/v1/batches/"+id+"/cancel", nil); status != 400 {
		t.Errorf("cancelled again: %d", status)
	}
}

// TestFilesBelongToOwnersAndTheLimitHolds: uploads beyond --store-limit are a 400, also after a restart.
func TestFilesBelongToOwnersAndTheLimitHolds(t *testing.T) {
	dir := t.TempDir()
	s, stop := batchServer(t, dir, 3<<20, engine.Options{}, "k1", "k2")
	s.key = "k1"
	_, f := s.upload("batch", "abc\n")
	if f["filename"] != "in.jsonl" || f["bytes"] != 4.0 || f["purpose"] != "batch" {
		t.Errorf("%v", f)
	}
	path := fmt.Sprintf("/v1/files/%s", f["id"])
	if _, text := s.text("GET", path+"/content", nil); text != "abc\n" {
		t.Errorf("%q", text)
	}
	s.key = "k2"
	for _, r := range [][2]string{{"GET", path}, {"GET", path + "/content"}, {"DELETE", path}} {
		if status, _ := s.text(r[0], r[1], nil); status != 404 {
			t.Errorf("%v by another owner: %d", r, status)
		}
	}
	if status, text := s.text("POST", "/v1/batches", map[string]any{"endpoint": "/v1/completions", "input_file_id": f["id"], "completion_window": "24h"}); status != 400 {
		t.Errorf("a batch of another owner's file: %s", text)
	}
	s.key = "k1"
	for range 2 {
		if status, v := s.upload("batch", strings.Repeat("x", 4<<20)); status != 400 || !strings.Contains(fmt.Sprint(v), "--store-limit") {
			t.Errorf("%d %v", status, v)
		}
	}
	if status, _ := s.upload("batch", strings.Repeat("y", 1<<20)); status != 200 {
		t.Errorf("a file that fits: %d", status)
	}
	for purpose, want := range map[string]string{"fine-tune": "purpose", "": "purpose"} {
		if status, v := s.upload(purpose, "z"); status != 400 || !strings.Contains(fmt.Sprint(v), want) {
			t.Errorf("%q: %d %v", purpose, status, v)
		}
	}
	stop()
	s, _ = batchServer(t, dir, 1<<20, engine.Options{}, "k1")
	s.key = "k1"
	if status, _ := s.upload("batch", "z"); status != 400 {
		t.Errorf("after a restart with a smaller limit: %d", status)
	}
	_, text := s.text("GET", "/v1/files?order=asc&limit=1", nil)
	if l := object(t, text); l["has_more"] != true || l["last_id"] != f["id"] {
		t.Errorf("%s", text)
	}
	if status, _ := s.text("DELETE", path, nil); status != 200 {
		t.Errorf("deleting: %d", status)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "files", "*.data")); len(left) != 1 {
		t.Errorf("files left: %v", left)
	}
}

// TestFilesWithoutAFolderNameTheFlag: all endpoints answer 400.
func TestFilesWithoutAFolderNameTheFlag(t *testing.T) {
	s := serveDemo(t)
	for _, r := range [][2]string{{"POST", "/v1/files"}, {"GET", "/v1/files"}, {"GET", "/v1/files/x"}, {"GET", "/v1/files/x/content"}, {"DELETE", "/v1/files/x"},
		{"POST", "/v1/batches"}, {"GET", "/v1/batches"}, {"GET", "/v1/batches/x"}, {"POST", "/v1/batches/x/cancel"}} {
		if status, text := s.text(r[0], r[1], nil); status != 400 || !strings.Contains(text, "--store DIR") {
			t.Errorf("%v: %d %s", r, status, text)
		}
	}
	if status, v := s.upload("batch", strings.Repeat("x", 1<<20)); status != 400 || !strings.Contains(fmt.Sprint(v), "--store DIR") {
		t.Errorf("an upload: %d %v", status, v)
	}
}

// TestBatchesAreListed: the newest first, page by page, and each for its owner.
func TestBatchesAreListed(t *testing.T) {
	s, _ := batchServer(t, t.TempDir(), 1<<24, engine.Options{})
	var ids []string
	for range 3 {
		ids = append(ids, s.begin("/v1/chat/completions", chatLine(1, 1)))
	}
	var got []string
	after := ""
	for range 4 {
		_, text := s.text("GET", "/v1/batches?limit=1"+after, nil)
		l := object(t, text)
		for _, b := range l["data"].([]any) {
			got = append(got, b.(map[string]any)["id"].(string))
		}
		if l["has_more"] != true {
			break
		}
		after = fmt.Sprintf("&after=%s", l["last_id"])
	}
	slices.Reverse(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("%v, want %v", got, ids)
	}
	for _, bad := range []string{`{"endpoint":"/v1/x","input_file_id":"file-1","completion_window":"24h"}`, `{"endpoint":"/v1/completions","input_file_id":"file-1","completion_window":"1h"}`,
		`{"endpoint":"/v1/completions","input_file_id":"../x","completion_window":"24h"}`, `{}`} {
		if status, text := s.text("POST", "/v1/batches", bad); status != 400 {
			t.Errorf("%s: %d %s", bad, status, text)
		}
	}
}

// TestLinesOfARevokedKeyFail: a batch does not outlive the right of its owner.
func TestLinesOfARevokedKeyFail(t *testing.T) {
	dir := t.TempDir()
	s, stop := batchServer(t, dir, 1<<24, engine.Options{MaxBatch: 1}, "k1")
	s.key = "k1"
	var in strings.Builder
	for i := range 100 {
		in.WriteString(chatLine(i, 30))
	}
	id := s.begin("/v1/chat/completions", in.String())
	stop()
	_, stop = batchServer(t, dir, 1<<24, engine.Options{}, "k2")
	for range 60_000 {
		b, err := os.ReadFile(filepath.Join(dir, "batches", id+".json"))
		if err == nil && strings.Contains(string(b), `"status":"completed"`) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	s, _ = batchServer(t, dir, 1<<24, engine.Options{}, "k1")
	s.key = "k1"
	b := s.ended(id)
	if out := s.results(b["error_file_id"]); len(out) == 0 || !strings.Contains(fmt.Sprint(out), "no longer valid") {
		t.Errorf("%v", b)
	}
}
