//go:build soak

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A question is a request whose answer does not depend on what else the server does.
type question struct {
	kind   string
	stream bool
	bodies []map[string]any // one, or the lines of a batch
	want   string
}

// makeQuestions returns different questions for the models. Some of them begin alike.
func makeQuestions(r *rand.Rand, models []*soakModel, count int) []*question {
	var stems [][]int
	for range 4 {
		stems = append(stems, ids(r, 64+r.IntN(120), 40))
	}
	list := make([]*question, count)
	for i := range list {
		m := models[r.IntN(len(models))]
		q := &question{kind: "completion", stream: r.IntN(3) == 0, bodies: []map[string]any{completionOf(r, m, stems)}}
		body := q.bodies[0]
		switch r.IntN(7) {
		case 0:
			q.kind = "several prompts"
			body["prompt"] = [][]int{ids(r, 1+r.IntN(m.context-40), m.vocab), ids(r, 1+r.IntN(20), m.vocab), ids(r, 1+r.IntN(24), m.vocab)}
		case 1:
			q.kind = "several choices"
			body["n"], body["temperature"], body["seed"], body["top_p"] = 2+r.IntN(3), 1.0, r.IntN(1000), 0.9
		case 2:
			if m.texts {
				q.kind = "grammar"
				constrain(r, body)
			}
		case 3:
			q.kind, q.stream = "prompt's probabilities", false
			body["echo"], body["logprobs"] = true, 1
		}
		if i == 0 { // one is enough: the server tries failed lines of a batch again, after seconds
			q.kind, q.stream, q.bodies = "batch", false, nil
			for range 2 + r.IntN(4) {
				q.bodies = append(q.bodies, completionOf(r, models[r.IntN(len(models))], stems))
			}
		}
		if q.stream {
			body["stream"] = true
		}
		list[i] = q
	}
	return list
}

// ids returns random tokens.
func ids(r *rand.Rand, n, vocab int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = 6 + r.IntN(vocab-6)
	}
	return list
}

// completionOf returns the body of a completion of m or of one of its adapters.
func completionOf(r *rand.Rand, m *soakModel, stems [][]int) map[string]any {
	prompt := ids(r, 1+r.IntN(60), m.vocab)
	if r.IntN(2) == 0 {
		prompt = append(slices.Clone(stems[r.IntN(len(stems))]), prompt...)
	}
	prompt = prompt[:min(len(prompt), m.context-40)]
	model := m.name
	if len(m.adapters) > 0 && r.IntN(2) == 0 {
		model = m.adapters[r.IntN(len(m.adapters))]
	}
	return map[string]any{"model": model, "prompt": prompt, "max_tokens": 1 + r.IntN(24), "ignore_eos": true, "temperature": 0,
		"return_token_ids": true, "logprobs": r.IntN(3)}
}

// constrain gives the answer of body a form.
func constrain(r *rand.Rand, body map[string]any) {
	delete(body, "ignore_eos")
	switch r.IntN(3) {
	case 0:
		body["guided_regex"] = `[a-f]{3,9}(-[0-9]{2}){1,4}`
	case 1:
		body["guided_choice"] = []string{"yes", "no", "perhaps, as far as is known"}
	case 2:
		body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "strict": true, "schema": map[string]any{
			"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}, "ok": map[string]any{"type": "boolean"}},
			"required": []string{"n", "ok"}, "additionalProperties": false}}}
	}
	body["max_tokens"] = 40
}

// errCancelled is the result of a question that its client dropped.
var errCancelled = errors.New("cancelled by the client")

// An asked is what a server says to a question: its answer, or why there is none.
type asked struct {
	answer string
	status int // of an error
	err    error
}

// put asks q, and drops it after a while if cancel is not 0.
func (q *question) put(url string, cancel time.Duration) asked {
	ctx, stop := context.WithTimeoutCause(context.Background(), 90*time.Second, errors.New("no answer within 90 s"))
	defer stop()
	if cancel > 0 {
		var drop context.CancelCauseFunc
		ctx, drop = context.WithCancelCause(ctx)
		defer time.AfterFunc(cancel, func() { drop(errCancelled) }).Stop()
	}
	a := q.send(ctx, url)
	if cause := context.Cause(ctx); cause != nil && a.err != nil {
		a.err = cause
	}
	return a
}

func (q *question) send(ctx context.Context, url string) asked {
	if q.kind == "batch" {
		return q.batch(ctx, url)
	}
	text, err := json.Marshal(q.bodies[0])
	if err != nil {
		return asked{err: err}
	}
	status, out, err := exchange(ctx, "POST", url+"/v1/completions", "application/json", text)
	if err != nil || status != http.StatusOK {
		return asked{status: status, err: errors.Join(err, fmt.Errorf("status %d: %.400s", status, out))}
	}
	var c choices
	if !q.stream {
		err = c.add(out)
		return asked{answer: c.String(), err: err}
	}
	done := false
	for line := range strings.Lines(string(out)) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			done = done || ok
			continue
		}
		if err = c.add([]byte(data)); err != nil {
			return asked{status: http.StatusInternalServerError, err: err}
		}
	}
	if !done {
		return asked{err: fmt.Errorf("the stream ended early: …%.300s", out[max(0, len(out)-300):])}
	}
	return asked{answer: c.String()}
}

// exchange sends a request and reads the answer.
func exchange(ctx context.Context, method, url, kind string, body []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	out, err := io.ReadAll(answer.Body)
	return answer.StatusCode, out, err
}

// choices are those of an answer, put together from its chunks.
type choices map[int]*choice

type choice struct {
	ids    []int
	logs   []string
	text   string
	reason string
}

func (c *choices) add(data []byte) error {
	var chunk struct {
		Error   any
		Choices []struct {
			Index    int
			Text     string
			IDs      []int  `json:"token_ids"`
			Reason   string `json:"finish_reason"`
			Logprobs struct {
				Values []json.RawMessage `json:"token_logprobs"`
			}
		}
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("%w: %.300s", err, data)
	}
	if chunk.Error != nil {
		return fmt.Errorf("error in an answer: %.400s", data)
	}
	if *c == nil {
		*c = choices{}
	}
	for _, part := range chunk.Choices {
		whole := (*c)[part.Index]
		if whole == nil {
			whole = new(choice)
			(*c)[part.Index] = whole
		}
		whole.ids = append(whole.ids, part.IDs...)
		whole.text += part.Text
		whole.reason += part.Reason
		for _, v := range part.Logprobs.Values {
			whole.logs = append(whole.logs, string(v))
		}
	}
	return nil
}

func (c choices) String() string {
	var b strings.Builder
	for i := range len(c) {
		if one := c[i]; one != nil {
			fmt.Fprintf(&b, "%d: %v %v %q %s\n", i, one.ids, one.logs, one.text, one.reason)
		}
	}
	return b.String()
}

// batch sends the bodies as the lines of a batch and waits for the answers.
func (q *question) batch(ctx context.Context, url string) asked {
	var lines bytes.Buffer
	for i, body := range q.bodies {
		text, err := json.Marshal(map[string]any{"custom_id": fmt.Sprint(i), "method": "POST", "url": "/v1/completions", "body": body})
		if err != nil {
			return asked{err: err}
		}
		lines.Write(append(text, '\n'))
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.WriteField("purpose", "batch")
	part, _ := w.CreateFormFile("file", "lines.jsonl")
	_, _ = part.Write(lines.Bytes())
	_ = w.Close()
	var file, batch struct {
		ID, Status string
		Output     string `json:"output_file_id"`
		Errors     string `json:"error_file_id"`
	}
	step := func(into any, method, path, kind string, body []byte) *asked {
		status, out, err := exchange(ctx, method, url+path, kind, body)
		if err == nil && status == http.StatusOK {
			if b, raw := into.(*[]byte); raw {
				*b = out
				return nil
			}
			err = json.Unmarshal(out, into)
		}
		if err != nil || status != http.StatusOK {
			return &asked{status: status, err: errors.Join(err, fmt.Errorf("%s %s: status %d: %.400s", method, path, status, out))}
		}
		return nil
	}
	if a := step(&file, "POST", "/v1/files", w.FormDataContentType(), form.Bytes()); a != nil {
		return *a
	}
	if a := step(&batch, "POST", "/v1/batches", "application/json", fmt.Appendf(nil, `{"input_file_id":%q,"endpoint":"/v1/completions","completion_window":"24h"}`, file.ID)); a != nil {
		return *a
	}
	for batch.Status != "completed" {
		if slices.Contains([]string{"failed", "expired", "cancelled"}, batch.Status) {
			return asked{status: http.StatusInternalServerError, err: fmt.Errorf("the batch is %s", batch.Status)}
		}
		select {
		case <-ctx.Done():
			_, _, _ = exchange(context.Background(), "POST", url+"/v1/batches/"+batch.ID+"/cancel", "application/json", nil)
			return asked{err: fmt.Errorf("the batch is %s: %w", batch.Status, context.Cause(ctx))}
		case <-time.After(20 * time.Millisecond):
		}
		if a := step(&batch, "GET", "/v1/batches/"+batch.ID, "", nil); a != nil {
			return *a
		}
	}
	return q.collect(batch.Output, batch.Errors, func(id string) (out []byte, a *asked) {
		a = step(&out, "GET", "/v1/files/"+id+"/content", "", nil)
		return out, a
	})
}

// collect puts the lines of a batch's output together.
func (q *question) collect(output, failed string, read func(id string) ([]byte, *asked)) asked {
	answers := make([]string, len(q.bodies))
	for _, id := range []string{output, failed} {
		if id == "" {
			continue
		}
		out, a := read(id)
		if a != nil {
			return *a
		}
		for line := range strings.Lines(string(out)) {
			var one struct {
				ID       string `json:"custom_id"`
				Response struct {
					Status int `json:"status_code"`
					Body   json.RawMessage
				}
			}
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				return asked{err: fmt.Errorf("%w: %.300s", err, line)}
			}
			var c choices
			if one.Response.Status != http.StatusOK {
				return asked{status: one.Response.Status, err: fmt.Errorf("a line of a batch: %.400s", line)}
			}
			if err := c.add(one.Response.Body); err != nil {
				return asked{err: err}
			}
			var i int
			_, _ = fmt.Sscan(one.ID, &i)
			answers[i] += c.String()
		}
	}
	if i := slices.Index(answers, ""); i >= 0 {
		return asked{err: fmt.Errorf("line %d of a batch has no answer", i)}
	}
	return asked{answer: strings.Join(answers, "")}
}
