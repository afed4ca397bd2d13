// Package checks runs the checks of a service: each passes unless it panics, and becomes one line of JSON.
package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	within = 3 * time.Minute
	atOnce = 6
)

type named struct {
	name string
	body func(context.Context)
}

var (
	added []named
	last  atomic.Int64
)

// Add adds a check.
func Add(name string, body func(context.Context)) {
	added = append(added, named{name, body})
}

// Unique returns a name that no other resource has.
func Unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, last.Add(1))
}

// Must panics with an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Equal panics unless the two are equal.
func Equal(expected, actual any) {
	if !reflect.DeepEqual(expected, actual) {
		panic(fmt.Sprintf("expected %#v, but was %#v", expected, actual))
	}
}

// That panics with what was found unless the condition holds.
func That(condition bool, found any) {
	if !condition {
		panic(fmt.Sprintf("found %v", found))
	}
}

// Ask sends a request to the endpoint of an emulator's own, and returns the parsed response.
func Ask(method, url string, body any) map[string]any {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		Must(err)
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, url, content)
	Must(err)
	response, err := http.DefaultClient.Do(request)
	Must(err)
	defer func() { _ = response.Body.Close() }()
	Equal(200, response.StatusCode)
	var found map[string]any
	Must(json.NewDecoder(response.Body).Decode(&found))
	return found
}

// Inject posts a fault, and returns a function that says how often it was applied.
func Inject(url string, fault map[string]any) func() int {
	id := fmt.Sprint(Ask("POST", url, fault)["id"])
	return func() int { return int(Ask("GET", url+"/"+id, nil)["applied"].(float64)) }
}

// Main runs every check whose name has the words of the arguments, some at a time.
func Main() {
	words := strings.Join(os.Args[1:], " ")
	waiting := make(chan named)
	var printing sync.Mutex
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for each := range waiting {
				line := outcome(each)
				printing.Lock()
				fmt.Println(line)
				printing.Unlock()
			}
		})
	}
	for _, each := range added {
		if strings.Contains(each.name, words) {
			waiting <- each
		}
	}
	close(waiting)
	workers.Wait()
}

func outcome(each named) string {
	began := time.Now()
	done := make(chan any, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		defer func() { done <- recovered(recover()) }()
		each.body(ctx)
	}()
	var found any
	select {
	case found = <-done:
	case <-time.After(within + 5*time.Second):
		found = fmt.Sprintf("not over in %v", within)
	}
	line, err := json.Marshal(struct {
		Check string `json:"check"`
		Error any    `json:"error"`
		Ms    int64  `json:"ms"`
	}{each.name, found, time.Since(began).Milliseconds()})
	Must(err)
	return string(line)
}

func recovered(found any) any {
	if found == nil {
		return nil
	}
	return fmt.Sprintf("%v\n%s", found, debug.Stack())
}
