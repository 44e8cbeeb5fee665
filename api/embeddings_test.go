package api_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// vector is an embedding of an answer in either encoding.
func vector(t *testing.T, answer map[string]any, i int) []float64 {
	t.Helper()
	var out []float64
	switch v := at(answer, "data", i, "embedding").(type) {
	case []any:
		for _, x := range v {
			f, err := x.(json.Number).Float64()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, f)
		}
	case string:
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) > 0; b = b[4:] {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		}
	default:
		t.Fatalf("embedding %d is %T", i, v)
	}
	return out
}

// TestEmbeddings asks for the same text in each form and compares.
func TestEmbeddings(t *testing.T) {
	s := serveDemo(t)
	const text = "The boat came down the river"
	_, tokens := s.object("POST", "/tokenize", obj{"prompt": text})
	ids := tokens["tokens"]
	status, first := s.object("POST", "/v1/embeddings", obj{"input": text, "model": "heft-demo"})
	if status != 200 || first["object"] != "list" || at(first, "data", 0, "object") != "embedding" {
		t.Fatalf("status %d: %.300v", status, first)
	}
	want := vector(t, first, 0)
	count := fmt.Sprint(tokens["count"])
	if fmt.Sprint(at(first, "usage", "prompt_tokens")) != count || fmt.Sprint(at(first, "usage", "total_tokens")) != count {
		t.Errorf("usage %v, want %v tokens", first["usage"], count)
	}
	for name, body := range map[string]obj{
		"base64":        {"input": text, "encoding_format": "base64"},
		"strings":       {"input": []string{text, "A river"}, "encoding_format": "float", "user": "u"},
		"ids":           {"input": ids},
		"lists of ids":  {"input": []any{ids, ids}, "encoding_format": "base64"},
		"null for none": {"input": text, "dimensions": nil, "encoding_format": nil},
	} {
		status, got := s.object("POST", "/v1/embeddings", body)
		if status != 200 {
			t.Errorf("%s: status %d: %v", name, status, got)
			continue
		}
		for k, v := range vector(t, got, 0) {
			if float32(v) != float32(want[k]) {
				t.Errorf("%s: value %d is %v, want %v", name, k, v, want[k])
				break
			}
		}
	}
	_, cut := s.object("POST", "/v1/embeddings", obj{"input": text, "dimensions": 5})
	length, full := 0.0, 0.0
	short := vector(t, cut, 0)
	for k, v := range short {
		length, full = length+v*v, full+want[k]*want[k]
	}
	if len(short) != 5 || !(math.Abs(length-1) <= 1e-6) || !(math.Abs(short[0]-want[0]/math.Sqrt(full)) <= 1e-6) {
		t.Errorf("five dimensions %v of length %v", short, length)
	}
}

// TestEmbeddingRefusals: errors have OpenAI's form.
func TestEmbeddingRefusals(t *testing.T) {
	s := serveDemo(t)
	for name, test := range map[string]struct {
		body   any
		status int
		param  any
		code   any
	}{
		"no input":        {obj{}, 400, "input", nil},
		"null":            {obj{"input": nil}, 400, "input", nil},
		"empty text":      {obj{"input": ""}, 400, "input", nil},
		"empty among":     {obj{"input": []string{"a", ""}}, 400, "input", nil},
		"empty list":      {obj{"input": []string{}}, 400, "input", nil},
		"empty ids":       {obj{"input": []any{[]int{}}}, 400, "input", nil},
		"number":          {obj{"input": 3}, 400, "input", nil},
		"mixed":           {obj{"input": []any{"a", 3}}, 400, "input", nil},
		"id of no token":  {obj{"input": []int{1 << 30}}, 400, "input", nil},
		"negative id":     {obj{"input": []int{-1}}, 400, "input", nil},
		"too many":        {obj{"input": strings.Split(strings.Repeat("a ", 2048)+"a", " ")}, 400, "input", nil},
		"too long":        {obj{"input": strings.Repeat("the river ", 9000)}, 400, "input", "context_length_exceeded"},
		"format":          {obj{"input": "a", "encoding_format": "hex"}, 400, "encoding_format", nil},
		"no dimensions":   {obj{"input": "a", "dimensions": 0}, 400, "dimensions", nil},
		"many dimensions": {obj{"input": "a", "dimensions": 100000}, 400, "dimensions", nil},
		"another model":   {obj{"input": "a", "model": "x"}, 404, nil, "model_not_found"},
		"no JSON":         {"{", 400, nil, nil},
	} {
		status, got := s.object("POST", "/v1/embeddings", test.body)
		if status != test.status || at(got, "error", "param") != test.param || at(got, "error", "code") != test.code ||
			at(got, "error", "type") != "invalid_request_error" || at(got, "error", "message") == "" {
			t.Errorf("%s: status %d: %v", name, status, got)
		}
	}
}

// TestGoldenOpenAIEmbeddings compares with the official client's types and exchanges.
func TestGoldenOpenAIEmbeddings(t *testing.T) {
	n := 0
	var sh shapes
	if golden.JSON(t, golden.Path(t, "text", "openai", "shapes_embeddings.json"), &sh) {
		s := serveDemo(t)
		_, got := s.object("POST", "/v1/embeddings", obj{"input": []string{"The boat", "A river"}})
		report(t, sh.check("create_embedding_response.CreateEmbeddingResponse", "answer", got))
		n++
	}
	var file map[string]exchange
	golden.JSON(t, golden.Path(t, "text", "openai", "examples.json"), &file)
	for name, e := range file {
		if !strings.HasPrefix(e.Request.Path, "/v1/embeddings") {
			continue
		}
		var body any
		if err := json.Unmarshal(e.Request.Body, &body); err != nil {
			t.Fatal(err)
		}
		n++
		t.Run(name, func(t *testing.T) { checkExchange(t, e, body) })
	}
	golden.Count(t, "text/openai (embeddings)", n)
}
