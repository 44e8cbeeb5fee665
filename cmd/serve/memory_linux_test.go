package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/internal/testenv"
)

// anonymous is the anonymous memory of a process in bytes, as RssAnon says.
func anonymous(pid int) int64 { return statusField(pid, "RssAnon") }

func statusField(pid int, name string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return n << 10
}

// sample measures a process every 20 ms until stop is called, which returns the most.
func sample(pid int) (stop func() int64) {
	var most atomic.Int64
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			most.Store(max(most.Load(), anonymous(pid)))
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(end); <-done; return most.Load() }
}

// repeated is before, then text n times, then after, without ever being in memory.
func repeated(before, text, after string, n int) io.Reader {
	chunk := strings.Repeat(text, 1+(64<<10)/len(text))
	per := len(chunk) / len(text)
	readers := []io.Reader{strings.NewReader(before)}
	for ; n >= per; n -= per {
		readers = append(readers, strings.NewReader(chunk))
	}
	return io.MultiReader(append(readers, strings.NewReader(strings.Repeat(text, n)+after))...)
}

// A hostileBody is a request that took more memory than the limit allows.
type hostileBody struct {
	path                string
	before, text, after string
	repeats             int
	chunked             bool
	times               int // at once
}

func (h hostileBody) size() int { return len(h.before) + h.repeats*len(h.text) + len(h.after) }

// send returns the status and the body of the answer. A connection that the server closes while it
// refuses a body is one that was refused.
func (h hostileBody) send(t testing.TB, url string) (int, string) {
	r, err := http.NewRequest("POST", url+h.path, repeated(h.before, h.text, h.after, h.repeats))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	if r.ContentLength = int64(h.size()); h.chunked {
		r.ContentLength = -1
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return http.StatusRequestEntityTooLarge, err.Error()
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(answer.Body, 400))
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, string(b)
}

const (
	chatPath = "/v1/chat/completions"
	mib      = 1 << 20
)

var hostileBodies = map[string]hostileBody{
	"one letter":         {"/tokenize", `{"prompt":"`, "a", `"}`, 4 * mib, false, 3},
	"empty messages":     {chatPath, `{"messages":[`, "{},", `{}]}`, 32*mib/3 - 20, false, 2},
	"tiny messages":      {chatPath, `{"messages":[`, `{"role":"user","content":""},`, `{"role":"user","content":"a"}]}`, 32 * mib / 32, false, 2},
	"one long word":      {"/v1/completions", `{"prompt":"`, "a", `"}`, 32*mib - 20, false, 2},
	"a long message":     {chatPath, `{"messages":[{"role":"user","content":"`, "ab c", `"}]}`, 7 * mib, false, 3},
	"sixty at once":      {chatPath, `{"messages":[{"role":"user","content":"`, "abc ", `"}],"max_tokens":1}`, 9 * mib / 40, false, 60},
	"sixty long words":   {"/tokenize", `{"prompt":"`, "a", `"}`, 9 * mib / 10, false, 60},
	"deep":               {chatPath, `{"messages":[{"role":"user","content":"a"}],"tools":`, "[", "", 30 * mib, false, 1},
	"deep and closed":    {chatPath, `{"tools":`, `[{"a":`, "1", 4 * mib, false, 1},
	"stop strings":       {"/v1/completions", `{"prompt":"a","stop":[`, `"",`, `"b"]}`, 8 * mib, false, 1},
	"logit_bias":         {"/v1/completions", `{"prompt":"a","logit_bias":{`, `"5":1,`, `"6":1}}`, 4 * mib, false, 1},
	"tools":              {chatPath, `{"messages":[{"role":"user","content":"a"}],"tools":[`, `{"a":{}},`, `{}]}`, 3 * mib, false, 1},
	"many fields":        {chatPath, `{`, `"a":[],`, `"b":1}`, 4 * mib, false, 1},
	"ids":                {"/v1/completions", `{"prompt":[`, "1,", "1]}", 15 * mib, false, 1},
	"detokenized":        {"/detokenize", `{"tokens":[`, "5,", "5]}", 4 * mib, false, 4},
	"embeddings":         {"/v1/embeddings", `{"input":[`, `"aaaaaaa",`, `"a"]}`, 3 * mib, false, 1},
	"embeddings of ids":  {"/v1/embeddings", `{"input":[`, `[1],`, `[1]]}`, 6 * mib, false, 1},
	"chunked":            {"/tokenize", `{"prompt":"`, "b", `"}`, 30 * mib, true, 3},
	"chunked, many":      {"/tokenize", `{"prompt":"`, "b ", `"}`, mib / 2, true, 40},
	"escapes":            {"/tokenize", `{"prompt":"`, `\u0061`, `"}`, 5 * mib, false, 1},
	"too large":          {"/tokenize", `{"prompt":"`, `a`, `"}`, 40 * mib, true, 1},
	"values in kwargs":   {chatPath, `{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"a":[`, `[],`, `1]}}`, 8 * mib, false, 1},
	"answers at once":    {"/v1/completions", `{"prompt":"a","ignore_eos":true,"logprobs":20,"n":4,"max_tokens":100`, " ", `}`, 1, false, 16},
	"chats at once":      {chatPath, `{"messages":[{"role":"user","content":"a"}],"ignore_eos":true,"logprobs":true,"top_logprobs":20,"max_tokens":200`, " ", `}`, 1, false, 16},
	"held ids":           {"/v1/completions", `{"ignore_eos":true,"return_token_ids":true,"max_tokens":8,"prompt":[`, "[5],", `[5]]}`, 60, false, 4},
	"a list in a schema": {chatPath, `{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"text","a":[`, `{},`, `1]}}`, 8 * mib, false, 1},
}

// underAttack sends all hostile bodies to p, each several times at once, and calls after with what
// was answered.
func underAttack(t *testing.T, p *process, after func(name string, codes map[int]int)) {
	for name, h := range hostileBodies {
		var mu sync.Mutex
		codes, said := map[int]int{}, ""
		var all sync.WaitGroup
		for range h.times {
			all.Go(func() {
				code, text := h.send(t, p.url)
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
				said = text
			})
		}
		all.Wait()
		if codes[0] > 0 || codes[500] > 0 {
			t.Errorf("%s: %v, %.200s", name, codes, said)
		}
		t.Logf("%s: %d × %.1f MiB: %v %.120q", name, h.times, float64(h.size())/mib, codes, said)
		after(name, codes)
	}
}

// TestRequestsStayWithinTheMemoryLimit: bodies took gigabytes beyond --max-memory. Anonymous memory
// is sampled every 20 ms while they arrive: no byte is over the limit, and the server answers.
func TestRequestsStayWithinTheMemoryLimit(t *testing.T) {
	for _, limit := range []int64{128, 4096} {
		t.Run(fmt.Sprint(limit, " MiB"), func(t *testing.T) {
			p := start(t, "--max-memory", fmt.Sprintf("cpu=%dMiB", limit), "--strict-memory", "--max-model-len", "512")
			defer func() { _ = p.Process.Kill(); <-p.end }()
			stop := sample(p.Process.Pid)
			underAttack(t, p, func(name string, _ map[int]int) {
				if most := anonymous(p.Process.Pid); most > limit*mib {
					t.Errorf("%s: %d MiB", name, most/mib)
				}
			})
			if most := stop(); most == 0 || most > limit*mib {
				t.Errorf("%d bytes of anonymous memory, %d over the limit", most, most-limit*mib)
			} else {
				t.Logf("at most %d MiB of %d", most/mib, limit)
			}
			answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","max_tokens":2}`))
			if err != nil {
				t.Fatalf("%v\n%s", err, p.log)
			}
			defer answer.Body.Close()
			if b, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
				t.Errorf("status %d afterwards: %s", answer.StatusCode, b)
			}
			checkRequestRow(t, p.url)
		})
	}
}

// TestADefaultServerSurvivesInAControlGroup: without --max-memory the limit is the control group's,
// and one body of 4 MiB got the server killed in a group of 1500 MB.
func TestADefaultServerSurvivesInAControlGroup(t *testing.T) {
	group, err := memoryGroup(1500_000_000)
	testenv.Need(t, "cgroup", err == nil, "the right to make a control group with a memory limit")
	t.Cleanup(func() { _ = os.Remove(group) })
	p := startBy(t, []string{"sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, group})
	defer func() { _ = p.Process.Kill(); <-p.end }()
	stop := sample(p.Process.Pid)
	underAttack(t, p, func(name string, _ map[int]int) {
		if anonymous(p.Process.Pid) == 0 {
			t.Fatalf("%s: the server is gone\n%s", name, p.log)
		}
	})
	t.Logf("at most %d MiB", stop()/mib)
	answer, err := http.Get(p.url + "/health")
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	answer.Body.Close()
}

// memoryGroup makes a control group with a limit in bytes.
func memoryGroup(limit int) (string, error) {
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
	}
	group, err := os.MkdirTemp(root, "heft-test-")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(limit)), 0); err != nil {
		_ = os.Remove(group)
		return "", err
	}
	return group, nil
}

// BenchmarkRefusedBody is the processor time that the server takes to refuse a body of 32 MiB.
func BenchmarkRefusedBody(b *testing.B) {
	p := start(b, "--max-memory", "cpu=4GiB", "--max-model-len", "512")
	defer func() { _ = p.Process.Kill(); <-p.end }()
	for _, name := range []string{"empty messages", "tiny messages", "one long word", "ids", "chunked"} {
		b.Run(name, func(b *testing.B) {
			before := processorTime(p.Process.Pid)
			for b.Loop() {
				if code, text := hostileBodies[name].send(b, p.url); code < 400 || code == http.StatusInternalServerError {
					b.Fatalf("%d: %s", code, text)
				}
			}
			b.ReportMetric((processorTime(p.Process.Pid)-before)/float64(b.N), "cpu-s/op")
		})
	}
}

// processorTime is the CPU time of a process in seconds.
func processorTime(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// checkRequestRow: the plan and the ledger have rows for requests.
func checkRequestRow(t *testing.T, url string) {
	t.Helper()
	for path, want := range map[string]string{"/plan": `"request_bytes":\d\d`, "/metrics": `requests`} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(bufio.NewReader(answer.Body))
		answer.Body.Close()
		if !regexp.MustCompile(want).Match(bytes.TrimSpace(b)) {
			t.Errorf("%s has no row for requests", path)
		}
	}
}
