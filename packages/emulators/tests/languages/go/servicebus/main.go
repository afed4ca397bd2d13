// Checks of Service Bus with Microsoft's client for Go: each expects what the service does.
//
// SERVICEBUS, SECURE and HTTPS are connection strings for AMQP, AMQP with TLS, and HTTPS; ADMIN is the address of the
// emulator's own HTTP endpoint. An argument limits the checks to those with these words in their names.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const (
	within = time.Minute
	atOnce = 6
)

type named struct {
	name string
	body func(*bus)
}

var checks []named

// check adds a check: it passes unless it panics.
func check(name string, body func(*bus)) {
	checks = append(checks, named{name, body})
}

func main() {
	addConnecting()
	addSessions()
	addSending()
	addSettling()
	addManagement()
	words := strings.Join(os.Args[1:], " ")
	waiting := make(chan named)
	var printing sync.Mutex
	var workers sync.WaitGroup
	for range atOnce {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for each := range waiting {
				line := outcome(each)
				printing.Lock()
				fmt.Println(line)
				printing.Unlock()
			}
		}()
	}
	for _, each := range checks {
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
		own := newBus(ctx)
		defer func() { done <- recovered(recover()) }()
		defer own.close()
		each.body(own)
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
	if err != nil {
		panic(err)
	}
	return string(line)
}

func recovered(found any) any {
	if found == nil {
		return nil
	}
	return fmt.Sprintf("%v\n%s", found, debug.Stack())
}
