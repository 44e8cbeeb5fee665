package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

// server is the demo model and an adapter of it behind HTTP, on a port of the loopback. It is what
// serve --lora parrot=DIR runs.
type server struct {
	url     string
	closing []func()
}

func serve(dir string) (s *server, err error) {
	s = &server{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{KVTokens: 4096, Adapters: []dispatch.Adapter{{Name: name, Dir: dir}}})
	if err != nil {
		return s, err
	}
	s.closing = append(s.closing, model.Close)
	generator, err := generate.New(model, generate.Options{})
	if err != nil {
		return s, err
	}
	s.closing = append(s.closing, generator.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	s.url = "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- api.Serve(ctx, listener, generator, api.Options{AccessLog: slog.New(slog.DiscardHandler)})
	}()
	s.closing = append(s.closing, func() { stop(); <-served })
	return s, nil
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
	for i := len(s.closing) - 1; i >= 0; i-- {
		s.closing[i]()
	}
}
