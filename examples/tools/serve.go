package main

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

// template is a chat template with tools. From it Heft learns how the model writes calls.
const template = `
{%- for tool in tools or [] %}{{ tool.function | tojson }}{{ '\n' }}{% endfor %}
{%- for message in messages %}
{{- '<|' + message.role + '|>' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\n</tool_call>' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}`

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
	folder, err := os.MkdirTemp("", "heft-tools-")
	if err != nil {
		return s, err
	}
	s.closing = append(s.closing, func() { _ = os.RemoveAll(folder) })
	if err := os.CopyFS(folder, demo.Files()); err != nil {
		return s, err
	}
	if err := os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte(template), 0o644); err != nil {
		return s, err
	}
	model, err := dispatch.Open(folder, dispatch.Options{Serving: true, KVTokens: 4096})
	if err != nil {
		return s, err
	}
	s.closing = append(s.closing, model.Close)
	generator, err := generate.New(model, generate.Options{Name: demo.Name})
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
	go func() { served <- api.Serve(ctx, listener, generator, api.Options{}) }()
	s.closing = append(s.closing, func() { stop(); <-served })
	return s, nil
}

func (s *server) close() {
	for i := len(s.closing) - 1; i >= 0; i-- {
		s.closing[i]()
	}
}
