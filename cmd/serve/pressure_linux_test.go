package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// weighty is a model of 24 layers that takes 360 MB.
const weighty = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 768,
	"intermediate_size": 2560, "num_hidden_layers": 24, "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 1000,
	"max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false}`

// weightyFolder writes a checkpoint of weighty with random values.
func weightyFolder(t testing.TB) string {
	t.Helper()
	return randomFolder(t, weighty)
}

// randomFolder writes a checkpoint of a config.json with random values.
func randomFolder(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := meta.ReadConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(6, 6))
	values := make([]byte, 1<<20)
	for i := 0; i < len(values); i += 2 { // bfloat16 of about ±0.01
		values[i], values[i+1] = byte(r.Uint32()), []byte{0x3c, 0xbc}[r.IntN(2)]
	}
	var tensors []loader.NamedTensor
	for _, e := range skeleton.Root.CheckpointEntries() {
		n, from := int(meta.BFloat16.Bytes(meta.Elements(e.Shape))), 2*r.IntN(1000)
		b := bytes.Repeat(values, n/len(values)+2)[from : from+n]
		tensors = append(tensors, loader.NamedTensor{Name: e.Name, DType: meta.BFloat16, Shape: e.Shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// softLimit writes the soft limit of a control group in bytes.
func softLimit(t testing.TB, group string, bytes int64) {
	t.Helper()
	name := limitFile(group, "memory.soft_limit_in_bytes", "memory.high")
	if err := writeLimit(name, bytes); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// hardLimit writes the hard limit of a control group in bytes. Version 1 answers EBUSY while the
// group, with its page cache and the kernel's memory, uses more and the kernel finds too little to
// reclaim at once, as on a busy machine. Then hardLimit tries again, as an operator would.
func hardLimit(t testing.TB, group string, bytes int64) {
	t.Helper()
	name := limitFile(group, "memory.limit_in_bytes", "memory.max")
	err := writeLimit(name, bytes)
	for end := time.Now().Add(20 * time.Second); errors.Is(err, syscall.EBUSY) && time.Now().Before(end); err = writeLimit(name, bytes) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		stat, _ := os.ReadFile(filepath.Join(group, "memory.stat"))
		t.Errorf("%s: %d: %v\n%s", name, bytes, err, stat)
	}
}

func limitFile(group, version1, version2 string) string {
	name := filepath.Join(group, version1)
	if _, err := os.Stat(name); err != nil {
		name = filepath.Join(group, version2)
	}
	return name
}

func writeLimit(name string, bytes int64) error {
	return os.WriteFile(name, strconv.AppendInt(nil, bytes, 10), 0)
}

// metric returns the value of the series in metrics that a pattern matches, 0 if there is none.
func metric(metrics, pattern string) float64 {
	m := regexp.MustCompile(`(?m)^` + pattern + ` (\S+)$`).FindStringSubmatch(metrics)
	if m == nil {
		return 0
	}
	v, _ := strconv.ParseFloat(m[1], 64)
	return v
}

// A client asks the same questions again and again until its context ends.
type client struct {
	mu      sync.Mutex
	answers map[string]string // to each question, which stays the same
	count   int
}

// answered is the number of answers so far.
func (c *client) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// ask sends one request and compares its answer with earlier ones.
func (c *client) ask(t testing.TB, url string, question int) {
	prompt := make([]string, 5+question*37)
	for i := range prompt {
		prompt[i] = strconv.Itoa((i*7 + question*13) % 997)
	}
	body := fmt.Sprintf(`{"prompt":[%s],"max_tokens":%d,"ignore_eos":true,"temperature":0,"return_token_ids":true}`, strings.Join(prompt, ","), 8+question)
	answer, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("request failed: %v", err)
		return
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	var out struct {
		Choices []struct {
			TokenIDs []int `json:"token_ids"`
		}
	}
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(b, &out) != nil || len(out.Choices) != 1 || len(out.Choices[0].TokenIDs) != 8+question {
		t.Errorf("request failed: %v, status %d: %.300s", err, answer.StatusCode, b)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := fmt.Sprint(out.Choices[0].TokenIDs)
	if first, ok := c.answers[body]; ok && first != ids {
		t.Errorf("question %d: %s, at first %s", question, ids, first)
	}
	c.answers[body] = ids
	c.count++
}

// TestALoweredLimitMovesWeights: lowering the limit of a control group killed the server. Under
// load the soft limit walks and the hard limit follows: each time anonymous memory falls below the
// soft limit, no request fails, and tokens stay the same.
func TestALoweredLimitMovesWeights(t *testing.T) {
	for _, quantize := range []string{"none", "q8_0"} {
		if testing.Short() && quantize != "none" {
			continue
		}
		t.Run(quantize, func(t *testing.T) { walkLimits(t, quantize) })
	}
}

func walkLimits(t *testing.T, quantize string) {
	group, err := memoryGroup(1500_000_000)
	testenv.Need(t, "cgroup", err == nil, "the right to make a control group with a memory limit")
	t.Cleanup(func() { _ = os.Remove(group) })
	p := startBy(t, []string{"sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, group},
		"--model", weightyFolder(t), "--threads", "2", "--log-level", "info", "--quantize", quantize, "--max-memory", "cpu=700MiB")
	defer func() { _ = p.Process.Kill(); <-p.end }()
	weights := func() float64 {
		_, metrics := p.get(t, "/metrics")
		return metric(metrics, `heft_memory_bytes{.*purpose="weights"}`)
	}
	for weights() < 170*mib { // 180 MiB of q8_0
		time.Sleep(20 * time.Millisecond)
	}
	c := client{answers: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer func() { cancel(); clients.Wait() }()
	for i := range 3 {
		clients.Go(func() {
			for n := i; ctx.Err() == nil && !t.Failed(); n++ {
				c.ask(t, p.url, n%4)
			}
		})
	}
	for c.answered() < 3 && !t.Failed() { // memory of requests has been used
		time.Sleep(20 * time.Millisecond)
	}
	full := anonymous(p.Process.Pid)
	hard := int64(1500_000_000)
	const least = 215 * mib // the plan's minimum, a bit more
	for _, share := range []int64{80, 20, 120, 0, 40} {
		limit := least + (full-least)*share/100
		if softLimit(t, group, limit); limit > hard {
			hardLimit(t, group, limit)
		}
		for end := time.Now().Add(time.Minute); anonymous(p.Process.Pid) >= limit; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bytes of anonymous memory under a soft limit of %d\n%s", anonymous(p.Process.Pid), limit, p.log)
			}
		}
		hardLimit(t, group, limit)
		hard = limit
		time.Sleep(200 * time.Millisecond)
	}
	softLimit(t, group, 1<<31)
	hardLimit(t, group, 1<<31)
	for end := time.Now().Add(time.Minute); weights() < 170*mib; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%g bytes of weights are held: they do not come back\n%s", weights(), p.log)
		}
	}
	cancel()
	clients.Wait()
	t.Logf("%d requests, %d MiB before\n%s", c.count, full/mib, regexp.MustCompile("(?m)^.*memory limit.*$").FindAllString(p.log.String(), -1))
	if c.count == 0 {
		t.Error("no request was answered")
	}
}
