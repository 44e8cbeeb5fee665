package ollama_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/ollama"
)

func ExampleServer() {
	s := ollama.New(generate.NewModels(&generate.Model{Name: "m"}), "1.0")
	w := httptest.NewRecorder()
	s.Chat(w, httptest.NewRequest(http.MethodPost, "/api/chat", strings.NewReader(`{"model": "none"}`)))
	fmt.Println(w.Code, w.Body)
	// Output: 404 {"error":"The model `none` does not exist: GET /v1/models lists those that do."}
}
