package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/tokenizer"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
)

// server is the demo model and an adapter of it behind HTTP, on a port of the loopback.
// It is what serve --lora parrot=DIR wires.
type server struct {
	checkpoint *loader.Checkpoint
	model      *dispatch.Model
	engine     *engine.Engine
	http       *http.Server
	url        string
}

func serve(dir string) (s *server, err error) {
	s = &server{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		return s, err
	}
	s.checkpoint = checkpoint
	options := dispatch.Options{KVTokens: 4096, Adapters: []dispatch.Adapter{{Name: name, Dir: dir}}}
	plan, options, err := dispatch.Plan(skeleton, options, dispatch.Placement{})
	if err != nil {
		return s, err
	}
	if s.model, err = dispatch.New(skeleton, checkpoint, plan.Map, options); err != nil {
		return s, err
	}
	metrics := api.NewMetrics(demo.Name)
	s.engine = engine.New(engine.ForDispatch(s.model), engine.Options{Observer: metrics})
	models, err := s.models()
	if err != nil {
		return s, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	s.url = "http://" + listener.Addr().String()
	s.http = &http.Server{ReadHeaderTimeout: time.Second, Handler: api.New(api.Options{
		Models: models, Metrics: metrics, Status: s.model.Status, Plan: func() any { return plan }})}
	go func() { _ = s.http.Serve(listener) }() // it ends with close
	return s, nil
}

// models are two names for one engine.
func (s *server) models() ([]*generate.Model, error) {
	words, err := tokenizer.LoadFS(demo.Files(), demo.Name)
	if err != nil {
		return nil, err
	}
	templates, err := chat.Load(demo.Files())
	if err != nil {
		return nil, err
	}
	named := func(name, adapter, parent string) *generate.Model {
		return &generate.Model{Name: name, Adapter: adapter, Parent: parent, Created: time.Now(), Engine: s.engine,
			Config: s.model.Skeleton().Config, Tokenizer: words, Chat: templates}
	}
	return []*generate.Model{named(demo.Name, "", ""), named(name, name, demo.Name)}, nil
}

// ask puts a question to one of the two.
func (s *server) ask(ctx context.Context, who, question string) (string, error) {
	body, err := json.Marshal(map[string]any{"model": who, "temperature": 0, "max_tokens": 24,
		"messages": []map[string]string{{"role": "user", "content": question}}})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var out struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK || len(out.Choices) == 0 {
		return "", fmt.Errorf("%s answers %s", who, answer.Status)
	}
	return out.Choices[0].Message.Content, nil
}

func (s *server) close() {
	if s.http != nil {
		_ = s.http.Close()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	if s.model != nil {
		s.model.Close()
	}
	if s.checkpoint != nil {
		_ = s.checkpoint.Close() // opened for reading
	}
}
