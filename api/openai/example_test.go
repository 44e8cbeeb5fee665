package openai_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
)

func ExampleWriteError() {
	w := httptest.NewRecorder()
	openai.WriteError(w, wire.Invalidf("n", "Invalid value for 'n': got 0, want 1 to 128."))
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// 400 {"error":{"message":"Invalid value for 'n': got 0, want 1 to 128.","type":"invalid_request_error","param":"n","code":null}}
}
