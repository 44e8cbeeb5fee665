package main

import (
	"context"
	"embed"
	"log/slog"
	"net"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// files has a chat template with tools. From it Heft learns how the model writes calls.
//
//go:embed chat_template.jinja
var files embed.FS

// server is a model behind HTTP, on a port of the loopback.
type server struct {
	url, model string
	closing    []func()
}

// serve opens the demo model with a template that has tools, and serves it.
func serve() (s *server, err error) {
	s = &server{model: demo.Name}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Serving: true, KVTokens: 4096})
	if err != nil {
		return s, err
	}
	s.closing = append(s.closing, model.Close)
	words, err := generate.ReadText(demo.Name, demo.Files())
	if err != nil {
		return s, err
	}
	if words.Chat, err = text.ReadChat(files, words.Tokenizer); err != nil {
		return s, err
	}
	generator, err := generate.New(model, generate.Options{Text: &words})
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

func (s *server) close() {
	for i := len(s.closing) - 1; i >= 0; i-- {
		s.closing[i]()
	}
}
