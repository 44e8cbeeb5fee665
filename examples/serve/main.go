// Serve answers OpenAI's API from a Go program: it opens the embedded demo model, serves it, sends
// itself a request, and shuts down. With an address it serves until it is interrupted.
//
//	go run ./examples/serve
//	go run ./examples/serve -listen 127.0.0.1:8000 -model ~/models/qwen3
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

// open opens the model in a folder, or the demo.
func open(folder string) (*dispatch.Model, error) {
	if folder == "" {
		return dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Serving: true, KVTokens: 4096})
	}
	return dispatch.Open(folder, dispatch.Options{Serving: true})
}

// serve is a whole server, which logs a line for each request. It returns when ctx ends and the running requests have ended.
func serve(ctx context.Context, listener net.Listener, folder string, requests *slog.Logger) error {
	model, err := open(folder)
	if err != nil {
		return err
	}
	defer model.Close()
	generator, err := generate.New(model, generate.Options{})
	if err != nil {
		return err
	}
	defer generator.Close()
	return api.Serve(ctx, listener, generator, api.Options{AccessLog: requests})
}

// ask sends one request to the server at url.
func ask(ctx context.Context, url, question string) (string, error) {
	body := fmt.Sprintf(`{"temperature": 0, "max_tokens": 48, "messages": [{"role": "user", "content": %q}]}`, question)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
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
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil || len(out.Choices) == 0 {
		return "", fmt.Errorf("got status %s and no answer: %w", answer.Status, err)
	}
	return out.Choices[0].Message.Content, nil
}

// once serves the demo, asks one question and stops.
func once(ctx context.Context, to io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener, "", slog.New(slog.DiscardHandler)) }()
	answer, err := ask(ctx, "http://"+listener.Addr().String(), "Hello!")
	if err != nil {
		return err
	}
	fmt.Fprintln(to, answer)
	stop()
	if err := <-served; err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, "the server has stopped")
	return err
}

func main() {
	address := flag.String("listen", "", "address to serve on; without one, ask one question")
	folder := flag.String("model", "", "folder of the model; without one, the demo")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *address == "" {
		if err := once(ctx, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, listener, *folder, slog.Default()); err != nil {
		log.Fatal(err)
	}
}
