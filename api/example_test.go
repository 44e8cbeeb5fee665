package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

// A server of the embedded demo model; dispatch.Open opens one in a folder.
func ExampleServe() {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, KVTokens: 512})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	generator, err := generate.New(model, generate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer generator.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- api.Serve(ctx, listener, generator, api.Options{}) }()

	answer, err := http.Get("http://" + listener.Addr().String() + "/health")
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	fmt.Println(answer.Status)
	stop() // Serve finishes its requests and returns
	fmt.Println(<-served)
	// Output:
	// 200 OK
	// <nil>
}

// The handler can be part of a larger server.
func ExampleNew() {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, KVTokens: 512})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	generator, err := generate.New(model, generate.Options{Name: "small"})
	if err != nil {
		log.Fatal(err)
	}
	defer generator.Close()
	handler := api.New(generator, api.Options{APIKeys: []string{"secret"}})

	for _, key := range []string{"", "Bearer secret"} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions",
			strings.NewReader(`{"model": "small", "prompt": "<|user|>Hello!<|end|><|assistant|>", "max_tokens": 11, "temperature": 0}`))
		r.Header.Set("Authorization", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var answer struct {
			Choices []struct{ Text string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			log.Fatal(err)
		}
		fmt.Println(w.Code, answer.Choices)
	}
	// Output:
	// 401 []
	// 200 [{Hello! I am Heft's demo model}]
}
