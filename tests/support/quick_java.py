"""Options of a JVM that is over before its code is compiled well."""

# Spark's classes are not checked again, and the growth of their number alone is no reason to collect garbage.
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
