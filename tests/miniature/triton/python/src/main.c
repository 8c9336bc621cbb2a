/* triton._C.libtriton */
#include <Python.h>

static PyObject* next_power_of_2(PyObject* module, PyObject* argument) {
    (void)module;
    unsigned long long number = PyLong_AsUnsignedLongLong(argument), power = 1;
    if (PyErr_Occurred()) return NULL;
    while (power < number && power << 1) power <<= 1;
    return PyLong_FromUnsignedLongLong(power);
}

static PyMethodDef methods[] = {
    {"next_power_of_2", next_power_of_2, METH_O, "the smallest power of two that is not below a number"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "libtriton", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_libtriton(void) { return PyModule_Create(&module); }
