package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"golang.org/x/net/websocket"
)

var (
	plain          = os.Getenv("SERVICEBUS")
	secure         = os.Getenv("SECURE")
	https          = os.Getenv("HTTPS")
	administration = newAdministration(https)
	last           atomic.Int64
)

// bus has what a check uses: clients, which it closes, and entities of its own.
type bus struct {
	ctx    context.Context
	client *azservicebus.Client
	opened []*azservicebus.Client
}

func newBus(ctx context.Context) *bus {
	own := &bus{ctx: ctx}
	own.client = own.connect(plain, nil)
	return own
}

func newAdministration(connectionString string) *admin.Client {
	client, err := admin.NewClientFromConnectionString(connectionString, nil)
	must(err)
	return client
}

// connect opens a client. Without options it repeats nothing.
func (own *bus) connect(connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	if options == nil {
		options = &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}
	}
	client, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	must(err)
	own.opened = append(own.opened, client)
	return client
}

func (own *bus) patient() *azservicebus.Client {
	return own.connect(plain, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 5, RetryDelay: 20 * time.Millisecond},
	})
}

func (own *bus) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, client := range own.opened {
		_ = client.Close(ctx)
	}
}

// secured connects with TLS. With a port in the connection string the client would look for it in the certificate.
func (own *bus) secured() *azservicebus.Client {
	address := regexp.MustCompile(`sb://([^:]+):(\d+)`).FindStringSubmatch(secure)
	return own.connect(strings.Replace(secure, address[0], "sb://"+address[1], 1), &azservicebus.ClientOptions{
		CustomEndpoint: address[1] + ":" + address[2],
	})
}

func (own *bus) webSockets() *azservicebus.Client {
	return own.connect(https, &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			// This WebSocket package always names an origin: that of the emulator, which refuses other ones.
			config, err := websocket.NewConfig(args.Host, strings.Replace(args.Host, "wss:", "https:", 1))
			if err != nil {
				return nil, err
			}
			config.Protocol = []string{"amqp"}
			connection, err := config.DialContext(ctx)
			if err != nil {
				return nil, err
			}
			connection.PayloadType = websocket.BinaryFrame
			return connection, nil
		},
	})
}

func unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, last.Add(1))
}

func (own *bus) queue(properties admin.QueueProperties) string {
	name := unique("queue")
	_, err := administration.CreateQueue(own.ctx, name, &admin.CreateQueueOptions{Properties: &properties})
	must(err)
	return name
}

func (own *bus) plainQueue() string { return own.queue(admin.QueueProperties{}) }

func (own *bus) queueWithSessions() string {
	return own.queue(admin.QueueProperties{RequiresSession: to.Ptr(true)})
}

// topic makes a topic with the subscription `all`.
func (own *bus) topic(properties admin.SubscriptionProperties) string {
	name := unique("topic")
	_, err := administration.CreateTopic(own.ctx, name, nil)
	must(err)
	_, err = administration.CreateSubscription(own.ctx, name, "all", &admin.CreateSubscriptionOptions{Properties: &properties})
	must(err)
	return name
}

func (own *bus) sender(entity string) *azservicebus.Sender {
	sender, err := own.client.NewSender(entity, nil)
	must(err)
	return sender
}

func (own *bus) receiver(queue string) *azservicebus.Receiver {
	return own.receiverWith(queue, nil)
}

func (own *bus) receiverWith(queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	receiver, err := own.client.NewReceiverForQueue(queue, options)
	must(err)
	return receiver
}

func (own *bus) deadLetters(queue string) *azservicebus.Receiver {
	return own.receiverWith(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (own *bus) subscription(topic string) *azservicebus.Receiver {
	receiver, err := own.client.NewReceiverForSubscription(topic, "all", nil)
	must(err)
	return receiver
}

func (own *bus) session(queue, id string) *azservicebus.SessionReceiver {
	session, err := own.client.AcceptSessionForQueue(own.ctx, queue, id, nil)
	must(err)
	return session
}

func (own *bus) nextSession(queue string) *azservicebus.SessionReceiver {
	session, err := own.client.AcceptNextSessionForQueue(own.ctx, queue, nil)
	must(err)
	return session
}

func (own *bus) send(entity string, messages ...*azservicebus.Message) {
	sender := own.sender(entity)
	for _, message := range messages {
		must(sender.SendMessage(own.ctx, message, nil))
	}
	must(sender.Close(own.ctx))
}

func message(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

func inSession(id string, bodies ...string) []*azservicebus.Message {
	var found []*azservicebus.Message
	for _, body := range bodies {
		found = append(found, &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(id)})
	}
	return found
}

// receives is a receiver of a queue, a subscription or a session.
type receives interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive receives `count` messages, waiting until they are there.
func (own *bus) receive(receiver receives, count int) []*azservicebus.ReceivedMessage {
	var found []*azservicebus.ReceivedMessage
	for len(found) < count {
		more, err := receiver.ReceiveMessages(own.ctx, count-len(found), nil)
		must(err)
		found = append(found, more...)
	}
	return found
}

func (own *bus) receiveOne(receiver receives) *azservicebus.ReceivedMessage {
	return own.receive(receiver, 1)[0]
}

// remaining returns what is left, after a short wait.
func (own *bus) remaining(receiver receives) []string {
	ctx, cancel := context.WithTimeout(own.ctx, 300*time.Millisecond)
	defer cancel()
	found, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		panic(err)
	}
	return bodies(found)
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(expected, actual any) {
	if !reflect.DeepEqual(expected, actual) {
		panic(fmt.Sprintf("expected %#v, but was %#v", expected, actual))
	}
}

func that(condition bool, found any) {
	if !condition {
		panic(fmt.Sprintf("found %v", found))
	}
}

// fails expects an error of the client with this code.
func fails(code azservicebus.Code, err error) {
	var known *azservicebus.Error
	if !errors.As(err, &known) || known.Code != code {
		panic(fmt.Sprintf("expected %s, but was %T %v", code, err, err))
	}
}

// refused expects an HTTP status of the administration API.
func refused(status int, err error) {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status {
		panic(fmt.Sprintf("expected %d, but was %T %v", status, err, err))
	}
}

func ask(method, url string, body any) map[string]any {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		must(err)
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, url, content)
	must(err)
	response, err := http.DefaultClient.Do(request)
	must(err)
	defer func() { _ = response.Body.Close() }()
	equal(200, response.StatusCode)
	var found map[string]any
	must(json.NewDecoder(response.Body).Decode(&found))
	return found
}

func count(path, kind string) int {
	entity := ask("GET", os.Getenv("ADMIN")+"/admin/entities", nil)[path].(map[string]any)
	return int(entity[kind].(float64))
}

// inject has the emulator fail as `kind` says, and returns how often it has.
func inject(kind, entity string, times int) func() int {
	fault := map[string]any{"kind": kind, "entity": entity}
	if times > 1 {
		fault["count"] = times
	}
	url := os.Getenv("ADMIN") + "/admin/faults"
	id := fmt.Sprint(ask("POST", url, fault)["id"])
	return func() int { return int(ask("GET", url+"/"+strings.TrimSuffix(id, ".0"), nil)["applied"].(float64)) }
}
