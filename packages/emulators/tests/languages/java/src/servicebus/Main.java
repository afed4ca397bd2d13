package servicebus;

import checks.Checks;

/** Checks of Service Bus with Microsoft's client for Java: each expects what the service does. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Sessions.add();
        Failing.add();
        Sending.add();
        Settling.add();
        Peeking.add();
        Topics.add();
        Checks.main(arguments);
    }
}
